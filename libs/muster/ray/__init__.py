"""Reads the demand of Ray clusters from their heads: gRPC first, the dashboard's HTTP where gRPC does not answer."""
