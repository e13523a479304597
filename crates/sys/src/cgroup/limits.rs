//! What a group may use.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use super::{Group, Version, is_absent};
use crate::fs::{self, PathError};

/// The length of a scheduling period, as the kernel has it if it is not told; limits are given per
/// period.
const CPU_PERIOD_US: u64 = 100_000;

/// What a group may use; what is absent is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    pub cpu_millis: Option<u64>,
    /// Memory and swap together.
    pub memory_bytes: Option<u64>,
    pub pids: Option<u32>,
}

/// The files that limit a group, open: whoever is to limit it at once need not look for them.
#[derive(Debug)]
pub struct OpenLimits {
    group: Group,
    files: Vec<(PathBuf, File)>,
}

/// One line for one file.
struct Setting {
    path: PathBuf,
    value: String,
    /// Kernels that do not account for it have no such file.
    may_be_absent: bool,
}

impl Group {
    /// Limits the group, which must have had no limits before.
    pub fn limit(&self, limits: &Limits) -> Result<(), PathError> {
        for Setting { path, value, may_be_absent } in self.settings(limits) {
            match fs::write(path, value) {
                Err(error) if may_be_absent && is_absent(&error) => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Opens what limits the group.
    pub fn open_limits(&self) -> Result<OpenLimits, PathError> {
        let any = Limits { cpu_millis: Some(1), memory_bytes: Some(1), pids: Some(1) };
        let mut files = Vec::new();
        for Setting { path, may_be_absent, .. } in self.settings(&any) {
            let file = OpenOptions::new().write(true).open(&path);
            match file.map_err(|error| PathError::new("open", &path, error)) {
                Err(error) if may_be_absent && is_absent(&error) => {}
                file => files.push((path, file?)),
            }
        }
        Ok(OpenLimits { group: self.clone(), files })
    }

    fn settings(&self, limits: &Limits) -> Vec<Setting> {
        let mut settings = Vec::new();
        let mut set = |at: &Path, file, value, may_be_absent| {
            settings.push(Setting { path: at.join(file), value, may_be_absent });
        };
        let quota = limits.cpu_millis.map(|millis| (millis * CPU_PERIOD_US / 1000).max(1000));
        match self.version {
            Version::None => {}
            Version::V1 => {
                if let Some(quota) = quota {
                    set(&self.at.cpu, "cpu.cfs_quota_us", quota.to_string(), false);
                }
                if let Some(bytes) = limits.memory_bytes {
                    let memory = &self.at.memory;
                    set(memory, "memory.limit_in_bytes", bytes.to_string(), false);
                    // Swap, and what waits in TCP connections, which is the host's otherwise.
                    set(memory, "memory.memsw.limit_in_bytes", bytes.to_string(), true);
                    set(memory, "memory.kmem.tcp.limit_in_bytes", bytes.to_string(), true);
                }
            }
            Version::V2 => {
                if let Some(quota) = quota {
                    set(&self.at.cpu, "cpu.max", format!("{quota} {CPU_PERIOD_US}"), false);
                }
                if let Some(bytes) = limits.memory_bytes {
                    set(&self.at.memory, "memory.max", bytes.to_string(), false);
                    set(&self.at.memory, "memory.swap.max", "0".to_owned(), true);
                }
            }
        }
        if let (Some(pids), true) = (limits.pids, self.is_real()) {
            set(&self.at.pids, "pids.max", pids.to_string(), false);
        }
        settings
    }
}

impl OpenLimits {
    /// As [`Group::limit`], and as often as one likes.
    pub fn limit(&self, limits: &Limits) -> Result<(), PathError> {
        let settings = self.group.settings(limits);
        // Memory is never more than memory and swap: what is to be raised, is raised from the last on.
        let refused: Vec<_> =
            settings.iter().filter(|setting| self.write(setting).is_err()).collect();
        refused.into_iter().try_for_each(|setting| self.write(setting))
    }

    fn write(&self, Setting { path, value, .. }: &Setting) -> Result<(), PathError> {
        // One that is not here was absent.
        let Some((_, file)) = self.files.iter().find(|(open, _)| open == path) else {
            return Ok(());
        };
        let mut file: &File = file;
        let written = file.write_all(value.as_bytes());
        written.map_err(|error| PathError::new("write", path, error))
    }
}
