//! `osb version`.

use crate::{failure::Failure, output::Output};

pub(crate) fn main(output: &mut Output<'_>) -> Result<u8, Failure> {
    output.line(concat!("osb ", env!("CARGO_PKG_VERSION")))?;
    Ok(0)
}
