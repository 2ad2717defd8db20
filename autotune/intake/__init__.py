"""What people pass in (words, files, Python objects), turned into a job and a folder."""
