"""What one run of the script does to its process, found and put back."""
