"""Codes: the words of readers for jobs and gangs as closed codes with their values, and what is noted of each."""
