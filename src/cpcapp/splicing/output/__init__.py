"""What is shown and written: pictures, a folder of results, a report."""
