//! Deleting several things of one kind.

use opensandbox::ClientError;

use crate::{failure::Failure, output::Output};

/// Deletes what can be deleted, and fails at the end if something could not.
pub(crate) async fn each(
    ids: &[String],
    output: &mut Output<'_>,
    delete: impl AsyncFn(&str) -> Result<(), ClientError>,
) -> Result<u8, Failure> {
    let mut code = 0;
    for id in ids {
        match delete(id).await {
            Ok(()) => output.line(id)?,
            Err(error @ ClientError::Api { .. }) => {
                let told = error.to_string();
                output.say(&if told.contains(id.as_str()) {
                    told
                } else {
                    format!("{id}: {told}")
                });
                code = 1;
            }
            // The next one would not fare better.
            Err(error) => return Err(error.into()),
        }
    }
    Ok(code)
}
