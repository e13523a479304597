//! What the sandbox may use: the least of all that is said about it, and of what is there.

use std::{fs::File, io};

use osb_core::{Cpu, Memory};
use rustix::{system::sysinfo, thread::sched_getaffinity};

use super::{counter, float};

/// A limit of processor time.
#[derive(Debug)]
pub(super) enum CpuLimit {
    Fixed(Cpu),
    /// `cpu.cfs_quota_us` and `cpu.cfs_period_us`.
    V1 {
        quota: File,
        period: File,
    },
    /// `cpu.max`: both in one line.
    V2(File),
}

impl CpuLimit {
    /// In processors; nothing if it is no limit.
    fn read(&self) -> Option<f64> {
        match self {
            Self::Fixed(cpu) => Some(float(cpu.millis()) / 1000.0),
            Self::V1 { quota, period } => {
                processors(&counter::text(quota).ok()?, &counter::text(period).ok()?)
            }
            Self::V2(file) => {
                let text = counter::text(file).ok()?;
                let (quota, period) = text.split_once(' ')?;
                processors(quota, period)
            }
        }
    }
}

/// A limit of memory.
#[derive(Debug)]
pub(super) enum MemoryLimit {
    Fixed(Memory),
    /// `memory.stat` of version 1, which knows the limits of groups that cannot be seen.
    V1(File),
    /// `memory.max`: a number, or a word for none.
    V2(File),
}

impl MemoryLimit {
    fn read(&self) -> Option<u64> {
        match self {
            Self::Fixed(memory) => Some(memory.bytes()),
            Self::V1(file) => {
                counter::field(&counter::text(file).ok()?, "hierarchical_memory_limit")
            }
            Self::V2(file) => counter::number(&counter::text(file).ok()?),
        }
    }
}

/// How many processors may be used, which need not be whole.
pub(super) fn cpus(limits: &[CpuLimit]) -> io::Result<f64> {
    let there = f64::from(sched_getaffinity(None)?.count().max(1));
    Ok(limits.iter().filter_map(CpuLimit::read).fold(there, f64::min))
}

/// How much memory may be used.
pub(super) fn memory(limits: &[MemoryLimit]) -> io::Result<u64> {
    let machine = sysinfo();
    #[expect(clippy::useless_conversion, reason = "the width differs between architectures")]
    let there = u64::from(machine.totalram).saturating_mul(u64::from(machine.mem_unit));
    let least = limits.iter().filter_map(MemoryLimit::read).fold(there, u64::min);
    if least == 0 { Err(counter::unknown("memory")) } else { Ok(least) }
}

/// No limit is a quota of `max` or `-1`.
fn processors(quota: &str, period: &str) -> Option<f64> {
    let (quota, period) = (counter::number(quota)?, counter::number(period)?);
    (quota > 0 && period > 0).then(|| float(quota) / float(period))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> File {
        osb_sys::memfd::with_content("limit", content.as_bytes()).unwrap()
    }

    fn read(limit: &CpuLimit) -> Option<String> {
        limit.read().map(|processors| processors.to_string())
    }

    #[test]
    fn processors_are_quota_by_period() {
        let v1 = |quota: &str| read(&CpuLimit::V1 { quota: file(quota), period: file("100000\n") });
        assert_eq!(v1("150000\n").as_deref(), Some("1.5"));
        assert_eq!(v1("-1\n"), None);
        let v2 = |text: &str| read(&CpuLimit::V2(file(text)));
        assert_eq!(v2("50000 100000\n").as_deref(), Some("0.5"));
        for none in ["max 100000\n", "0 0\n", "5\n", ""] {
            assert_eq!(v2(none), None, "{none:?}");
        }
        assert_eq!(read(&CpuLimit::Fixed(Cpu::from_millis(250))).as_deref(), Some("0.25"));
    }

    #[test]
    fn the_least_limit_holds_and_the_machine_is_one() {
        let limits = ["max\n", "1073741824\n", "2147483648\n"];
        let limits = limits.map(|text| MemoryLimit::V2(file(text)));
        assert_eq!(memory(&limits).unwrap(), 1 << 30);
        let stat = file("cache 5\nhierarchical_memory_limit 1048576\n");
        assert_eq!(memory(&[MemoryLimit::V1(stat)]).unwrap(), 1 << 20);
        let beyond = [MemoryLimit::Fixed(Memory::from_bytes(u64::MAX))];
        assert_eq!(memory(&beyond).unwrap(), memory(&[]).unwrap());
        let cpu = [CpuLimit::Fixed(Cpu::from_millis(1_000_000)), CpuLimit::V2(file("1000 100000"))];
        assert_eq!(cpus(&cpu).unwrap().to_string(), "0.01");
        assert!(cpus(&cpu[..1]).unwrap() < 1000.0);
    }
}
