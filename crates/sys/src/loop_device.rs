//! Files as block devices.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags, fstat, open},
    io::Errno,
};

use crate::fs;

/// How often to look for another free device when somebody else was quicker. Each time somebody
/// got one, so this ends only where devices are taken and given back without pause.
const ATTEMPTS: u32 = 100;

const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_info64` of loop(4).
#[repr(C)]
struct Status {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

impl Status {
    const EMPTY: Self = Self {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: 0,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
}

/// `struct loop_config` of loop(4).
#[repr(C)]
struct Configuration {
    fd: u32,
    block_size: u32,
    status: Status,
    reserved: [u64; 8],
}

/// A block device whose content is that of a file. It goes away by itself, with the last who has it
/// open or mounted.
#[derive(Debug)]
pub struct LoopDevice {
    number: i32,
    /// Keeps the device.
    open: OwnedFd,
}

impl LoopDevice {
    /// Whether this process may make such devices here.
    pub fn available() -> io::Result<()> {
        control().map(drop)
    }

    /// Makes a device of a file that is not one yet: two devices of one file corrupt it.
    pub fn attach(file: impl AsFd, block_size: u32) -> io::Result<Self> {
        let control = control()?;
        for _ in 0..ATTEMPTS {
            // SAFETY: LOOP_CTL_GET_FREE takes no argument.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(io::Error::last_os_error());
            }
            match configure(number, &file, block_size) {
                // Somebody else took it first, or removed it.
                Err(error) if is_lost(&error) => {}
                result => return result,
            }
        }
        Err(Errno::BUSY.into())
    }

    /// The device that this file is, if it is one.
    pub fn of(file: impl AsFd) -> io::Result<Option<Self>> {
        let stat = fstat(file)?;
        let names = fs::names("/sys/block").map_err(io::Error::other)?;
        let numbers = names.iter().filter_map(|name| name.strip_prefix("loop")?.parse().ok());
        for number in numbers {
            // It has this directory while it has a file.
            if !Path::new(&format!("/sys/block/loop{number}/loop")).exists() {
                continue;
            }
            let device = match Self::hold(number) {
                Err(error) if is_lost(&error) => continue,
                result => result?,
            };
            // Asked of what is held, so it cannot become another's any more.
            match device.status() {
                Ok(status) if (status.device, status.inode) == (stat.st_dev, stat.st_ino) => {
                    return Ok(Some(device));
                }
                Ok(_) => {}
                Err(error) if is_lost(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    pub fn path(&self) -> String {
        path(self.number)
    }

    /// Opened for reading alone: some kernels mount nothing that somebody could write to.
    fn hold(number: i32) -> io::Result<Self> {
        let open = open(path(number), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { number, open })
    }

    fn status(&self) -> io::Result<Status> {
        let mut status = Status::EMPTY;
        let fd = self.open.as_raw_fd();
        // SAFETY: LOOP_GET_STATUS64 writes a `loop_info64`, whose layout `status` has.
        let result = unsafe { libc::ioctl(fd, LOOP_GET_STATUS64, &raw mut status) };
        if result == 0 { Ok(status) } else { Err(io::Error::last_os_error()) }
    }
}

/// The files in this directory, deleted ones included, that are devices.
pub fn below(directory: &Path) -> Result<Vec<String>, fs::PathError> {
    let names = fs::names("/sys/block")?;
    let devices = names.iter().filter(|name| name.starts_with("loop"));
    // One that has no file, or loses it at this moment, has nothing to read.
    let files = devices
        .filter_map(|name| fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok());
    let files = files.map(|file| file.trim_end().to_owned());
    Ok(files.filter(|file| Path::new(file).starts_with(directory)).collect())
}

fn control() -> io::Result<OwnedFd> {
    Ok(open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

fn path(number: i32) -> String {
    format!("/dev/loop{number}")
}

fn configure(number: i32, file: impl AsFd, block_size: u32) -> io::Result<LoopDevice> {
    let writable = open(path(number), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let configuration = Configuration {
        fd: u32::try_from(file.as_fd().as_raw_fd()).map_err(io::Error::other)?,
        block_size,
        status: Status { flags: LO_FLAGS_AUTOCLEAR, ..Status::EMPTY },
        reserved: [0; 8],
    };
    // SAFETY: LOOP_CONFIGURE reads a `loop_config`, whose layout `configuration` has.
    let result =
        unsafe { libc::ioctl(writable.as_raw_fd(), LOOP_CONFIGURE, &raw const configuration) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    LoopDevice::hold(number)
}

fn is_lost(error: &io::Error) -> bool {
    let lost = [Errno::BUSY, Errno::NXIO, Errno::NOENT, Errno::NODEV];
    Errno::from_io_error(error).is_some_and(|error| lost.contains(&error))
}
