"""What every room may use, and nobody outside the package: it knows nothing of MDPs."""
