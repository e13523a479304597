//! Bytes for people.

/// The number in its largest unit, with one digit more as long as there is one digit before it:
/// `512 B`, `1.8 GB`, `708 MB`.
pub(crate) fn of(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut tenths = u128::from(bytes) * 10;
    let mut units = UNITS.iter();
    let mut unit = units.next().unwrap_or(&"B");
    while tenths >= 9995 {
        let Some(next) = units.next() else { break };
        unit = next;
        tenths = (tenths + 500) / 1000;
    }
    if *unit != "B" && tenths < 100 {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    } else {
        format!("{} {unit}", (tenths + 5) / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_unit_is_enough() {
        for (bytes, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (1849, "1.8 kB"),
            (9949, "9.9 kB"),
            (12_345, "12 kB"),
            (999_400, "999 kB"),
            (999_999, "1.0 MB"),
            (708_000_000, "708 MB"),
            (1_800_000_000, "1.8 GB"),
            (u64::MAX, "18447 PB"),
        ] {
            assert_eq!(of(bytes), expected, "{bytes}");
        }
    }
}
