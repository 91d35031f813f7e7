"""What every reader of objects needs: metadata, labels, pod specs."""
