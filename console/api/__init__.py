"""The HTTP API of design 6: thin views over services and selectors."""
