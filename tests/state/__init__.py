"""Where operators remember: stores, the changes over them, and what is said when a disk fails."""
