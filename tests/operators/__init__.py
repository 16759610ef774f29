"""What single records and single decisions look like, beside what the properties prove."""
