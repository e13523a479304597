//! Linux made safe. The only crate with `unsafe` code; everything it exports is safe to call.

#![expect(unsafe_code, reason = "this crate is where the kernel's raw interfaces become safe")]

pub mod beneath;
pub mod cgroup;
pub mod command;
pub mod confine;
pub mod confined;
pub mod doorkeeper;
pub mod exec;
pub mod fork;
pub mod fs;
pub mod identity;
pub mod in_place;
pub mod inherited;
pub mod layer;
pub mod line;
pub mod loop_device;
pub mod memfd;
pub mod memory;
pub mod merge;
pub mod message;
pub mod mount;
pub mod netns;
pub mod outlets;
pub mod own_address;
pub mod process;
pub mod quota;
pub mod ready;
pub mod rlimit;
pub mod rootless;
pub mod scope;
pub mod seccomp;
pub mod sparse;
pub mod spawn;
pub mod step;
pub mod tcp;
pub mod terminal;
pub mod tree;
pub mod unix;
pub mod unpack;
pub mod userns;
