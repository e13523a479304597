//! The runtime on this host: namespaces, overlay and cgroups, with nothing else installed.
