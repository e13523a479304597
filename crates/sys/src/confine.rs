//! What the programs of a sandbox can never do, whoever starts them.

use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
        remove_capability_from_bounding_set, set_capabilities,
    },
};

/// What root in a sandbox keeps of its powers, all of them over its own namespace only.
pub const SANDBOX: CapabilitySet = CapabilitySet::AUDIT_WRITE
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SYS_CHROOT);

/// Takes everything but `kept` from the set of capabilities that a program can ever gain.
pub fn bound_powers(kept: CapabilitySet) -> rustix::io::Result<()> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match capability_is_in_bounding_set(capability) {
            Ok(true) if !kept.contains(capability) => {
                remove_capability_from_bounding_set(capability)?;
            }
            Ok(_) => {}
            // Past the last one that this kernel knows.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Gives up everything but `kept` of what this thread can do now.
pub fn drop_powers(kept: CapabilitySet) -> rustix::io::Result<()> {
    let now = capabilities(None)?;
    let left = now.permitted & kept;
    let sets =
        CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets)
}
