//! Linux made safe: namespaces, mounts, cgroups, pidfds, sockets. The only crate with unsafe code.
