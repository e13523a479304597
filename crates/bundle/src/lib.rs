//! The static execd as bytes, built by this crate's build script.

/// The program that runs in every sandbox.
pub static EXECD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/execd-static"));

#[cfg(test)]
mod tests {
    use super::EXECD;

    /// The type of a program header that names an interpreter.
    const PT_INTERP: u32 = 3;

    #[test]
    fn execd_needs_no_interpreter() {
        assert!(EXECD.starts_with(b"\x7fELF\x02\x01"), "not a 64-bit little-endian program");
        let number = |at: usize, length: usize| {
            let bytes = EXECD[at..at + length].iter().rev();
            bytes.fold(0_usize, |number, &byte| number << 8 | usize::from(byte))
        };
        let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
        assert!(count > 0);
        for header in 0..count {
            let kind = number(table + header * size, 4);
            assert_ne!(u32::try_from(kind).unwrap(), PT_INTERP, "it is linked dynamically");
        }
    }
}
