//! `ADD` of a file from elsewhere.

use std::{
    fs::File,
    io::{self, Write as _},
    sync::Arc,
};

use osb_build::WorkError;
use osb_egress::FetchError;

use super::lender::Lender;

/// The most that one such file may have.
const MOST_BYTES: u64 = 8 << 30;

pub(super) async fn fetch(
    lender: &Lender<'_>,
    url: &str,
    to: Arc<File>,
) -> Result<File, WorkError> {
    let mut left = MOST_BYTES;
    let mut keep = |data: &[u8]| {
        left = left.checked_sub(data.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        (&*to).write_all(data)
    };
    let policy = lender.terms.policy.as_ref();
    match lender.app.reconciler.fetch(policy, url, &mut keep).await {
        Ok(()) => to.try_clone().map_err(|error| WorkError::failed("cannot keep a file", error)),
        Err(FetchError::Unkept(error)) if error.kind() == io::ErrorKind::FileTooLarge => {
            Err(WorkError::Refused(format!("{url} has more than {MOST_BYTES} bytes")))
        }
        Err(FetchError::Unkept(error)) => Err(WorkError::failed("cannot keep a file", error)),
        Err(
            error @ (FetchError::Address(_)
            | FetchError::Denied { .. }
            | FetchError::Unreached { .. }
            | FetchError::Status { .. }),
        ) => Err(WorkError::Refused(format!("{url} cannot be had: {error}"))),
    }
}
