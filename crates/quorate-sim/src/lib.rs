//! Whole clusters of Quorate in one seeded thread.
