"""What tests compare with: other libraries, in environments of their own."""
