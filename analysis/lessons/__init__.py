"""What a campaign teaches, in sentences with numbers and intervals."""
