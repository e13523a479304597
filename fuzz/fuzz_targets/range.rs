//! The `Range` header: never a byte outside the file, and the same as a simple reading of the rules.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// The first range of a list, in numbers that cannot overflow.
fn reference(header: &str, size: u128) -> Result<Option<(u128, u128)>, ()> {
    let Some(ranges) = header.trim().strip_prefix("bytes=") else { return Ok(None) };
    let (first, last) = ranges.split(',').next().ok_or(())?.trim().split_once('-').ok_or(())?;
    let number = |text: &str| {
        let digits = text.chars().all(|c| c.is_ascii_digit());
        let number = text.parse::<u128>().ok().filter(|number| *number <= u128::from(u64::MAX));
        number.filter(|_| digits).ok_or(())
    };
    let (start, end) = if first.is_empty() {
        (size - number(last)?.min(size), size)
    } else if last.is_empty() {
        (number(first)?, size)
    } else if number(first)? > number(last)? {
        return Err(());
    } else {
        (number(first)?, (number(last)? + 1).min(size))
    };
    if start < end { Ok(Some((start, end))) } else { Err(()) }
}

fuzz_target!(|data: &[u8]| {
    let Some((size, header)) = data.split_at_checked(8) else { return };
    let size = u64::from_le_bytes(size.try_into().expect("eight bytes"));
    let Ok(header) = str::from_utf8(header) else { return };
    let found = osb_execd::fuzz::range(header, size);
    let wide = found.as_ref().map(|part| part.map(|(start, end)| (start.into(), end.into())));
    assert_eq!(wide.map_err(drop), reference(header, size.into()));
    if let Ok(Some((start, end))) = found {
        assert!(start < end && end <= size);
    }
});
