"""What a plan does, one step at a time: what each step is, and how it is carried out on real storage."""
