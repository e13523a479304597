//! The daemon inside every sandbox: commands, files, PID 1 duties.
