"""Tools that every room may use. They know nothing about MDPs and are not public."""
