use std::{error::Error, fmt};

/// An error and everything behind it, on one line: for the log, and for people without one.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(error) = next {
            write!(f, ": {error}")?;
            next = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RuntimeError;

    #[test]
    fn every_cause_is_named_once() {
        let cause = RuntimeError::failed("cannot mount", "no such device");
        let error = RuntimeError::failed("cannot start", cause);
        assert_eq!(Chain(&error).to_string(), "cannot start: cannot mount: no such device");
    }
}
