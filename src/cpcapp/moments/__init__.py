"""What is added up: sample count, mean and scatter, from rows of any kind."""
