//! Counters of the kernel, and the words around them.

use std::{fs::File, io, os::unix::fs::FileExt, time::Duration};

/// More than any of these files has before what is looked for in it.
const READ: usize = 8 << 10;

/// The unit of times in `/proc/stat`, on every architecture.
const TICK_MS: u64 = 10;

/// Where the processor time is told that was used since some beginning.
#[derive(Debug)]
pub(super) enum CpuTime {
    /// `cpuacct.usage`: nanoseconds.
    V1(File),
    /// `cpu.stat`: among others, microseconds.
    V2(File),
    /// `/proc/stat`: of the whole machine.
    Machine(File),
    /// Nothing tells it.
    Unknown,
}

impl CpuTime {
    pub(super) fn read(&self) -> io::Result<Duration> {
        let (file, parse): (_, fn(&str) -> Option<Duration>) = match self {
            Self::V1(file) => (file, |text| number(text).map(Duration::from_nanos)),
            Self::V2(file) => (file, |text| field(text, "usage_usec").map(Duration::from_micros)),
            Self::Machine(file) => (file, machine_time),
            Self::Unknown => return Err(unknown("processor time")),
        };
        parse(&text(file)?).ok_or_else(|| unknown("processor time"))
    }
}

/// Where the memory in use is told.
#[derive(Debug)]
pub(super) enum MemoryUse {
    V1 {
        usage: File,
        stat: File,
    },
    V2 {
        usage: File,
        stat: File,
    },
    /// `/proc/meminfo`: of the whole machine.
    Machine(File),
    /// Nothing tells it.
    Unknown,
}

impl MemoryUse {
    /// The bytes in use, without what the kernel keeps of files that it can drop at any time.
    pub(super) fn read(&self) -> io::Result<u64> {
        let used = match self {
            Self::V1 { usage, stat } => without_cache(usage, stat, "total_")?,
            Self::V2 { usage, stat } => without_cache(usage, stat, "")?,
            Self::Machine(file) => machine_memory(&text(file)?),
            Self::Unknown => None,
        };
        used.ok_or_else(|| unknown("memory"))
    }
}

/// What the counters say of a group alone has no prefix; with those below it, it may have one.
fn without_cache(usage: &File, stat: &File, prefix: &str) -> io::Result<Option<u64>> {
    let (used, stat) = (number(&text(usage)?), text(stat)?);
    let cached =
        ["active_file", "inactive_file"].map(|cache| field(&stat, &format!("{prefix}{cache}")));
    let cached = cached.into_iter().flatten().fold(0, u64::saturating_add);
    Ok(used.map(|used| used.saturating_sub(cached)))
}

/// The beginning of a file of the kernel, as it is now.
pub(super) fn text(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; READ];
    let length = file.read_at(&mut bytes, 0)?;
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub(super) fn unknown(what: &str) -> io::Error {
    io::Error::other(format!("the kernel does not tell the {what} of this sandbox"))
}

/// A file that is one number.
pub(super) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// A line of a name and a number.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| number(line.strip_prefix(name)?.strip_prefix(' ')?))
}

/// What all processors of the machine did but idle, from `/proc/stat`.
fn machine_time(text: &str) -> Option<Duration> {
    let times = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut times = times.split_whitespace().map(str::parse::<u64>);
    let mut busy = 0_u64;
    // User, nice, system, idle, waiting, interrupts of two kinds, stolen. Those that follow are
    // part of the first two.
    for counts in [true, true, true, false, false, true, true, true] {
        let Some(time) = times.next() else { break };
        let time = time.ok()?;
        busy = busy.saturating_add(if counts { time } else { 0 });
    }
    Some(Duration::from_millis(busy.saturating_mul(TICK_MS)))
}

/// What of the machine's memory cannot be had, from `/proc/meminfo`.
fn machine_memory(text: &str) -> Option<u64> {
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        number(line.strip_suffix("kB")?)
    };
    let used = kib("MemTotal:")?.saturating_sub(kib("MemAvailable:")?);
    used.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(content: &str) -> File {
        osb_sys::memfd::with_content("counter", content.as_bytes()).unwrap()
    }

    #[test]
    fn separate_trees_count_in_nanoseconds_and_totals() {
        let cpu = CpuTime::V1(file("1500000000\n"));
        assert_eq!(cpu.read().unwrap(), Duration::from_millis(1500));
        // As if read again: from the beginning.
        assert_eq!(cpu.read().unwrap(), Duration::from_millis(1500));
        let stat =
            "cache 9\ninactive_file 1\nhierarchical_memory_limit 7\ntotal_inactive_file 300\n";
        let memory = MemoryUse::V1 { usage: file("1000\n"), stat: file(stat) };
        assert_eq!(memory.read().unwrap(), 700);
    }

    #[test]
    fn the_one_tree_counts_in_microseconds() {
        let cpu = CpuTime::V2(file("usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n"));
        assert_eq!(cpu.read().unwrap(), Duration::from_millis(2500));
        let stat = "anon 5\nfile 6\ninactive_anon 100\nactive_file 3\ninactive_file 400\n";
        let memory = MemoryUse::V2 { usage: file("1000\n"), stat: file(stat) };
        assert_eq!(memory.read().unwrap(), 597);
    }

    #[test]
    fn the_machine_counts_in_ticks_and_kibibytes() {
        let stat = "cpu  100 20 30 9999 9999 4 5 6 50 60\ncpu0 1 1 1 1\n";
        let cpu = CpuTime::Machine(file(stat));
        assert_eq!(cpu.read().unwrap(), Duration::from_millis(1650));
        let meminfo = "MemTotal:        2000 kB\nMemFree:  1 kB\nMemAvailable:     500 kB\n";
        assert_eq!(MemoryUse::Machine(file(meminfo)).read().unwrap(), 1500 * 1024);
    }

    #[test]
    fn what_is_not_told_is_an_error_and_not_a_zero() {
        for cpu in [CpuTime::V1(file("")), CpuTime::V2(file("x 1\n")), CpuTime::Unknown] {
            assert!(cpu.read().unwrap_err().to_string().contains("processor time"));
        }
        for memory in [MemoryUse::Machine(file("MemTotal: 5 kB\n")), MemoryUse::Unknown] {
            assert!(memory.read().unwrap_err().to_string().contains("memory"));
        }
    }

    #[test]
    fn more_cache_than_memory_is_no_memory() {
        let memory = MemoryUse::V2 { usage: file("10\n"), stat: file("inactive_file 11\n") };
        assert_eq!(memory.read().unwrap(), 0);
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_parser(text in ".{0,200}", number in any::<u64>()) {
            machine_time(&text);
            machine_memory(&text);
            field(&text, "usage_usec");
            machine_time(&format!("cpu {number} {number} {text}"));
            machine_memory(&format!("MemTotal: {number} kB\nMemAvailable: 0 kB"));
        }
    }
}
