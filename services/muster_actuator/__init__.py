"""The actuator: carries decisions out on the API server, and shows them."""
