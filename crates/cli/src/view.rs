//! What the commands have in common that show something.

use std::fmt::Write as _;

use opensandbox::{ClientError, Lifecycle, api::lifecycle::Pagination};
use serde::Serialize;

use crate::{
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    target::Target,
};

/// The most that a server puts on one page.
pub(crate) const PAGE_SIZE: u64 = 200;

/// How to show something, and whom to ask for it.
#[derive(Debug, clap::Args)]
pub(crate) struct View {
    /// How to show it
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: Target,
}

impl View {
    pub(crate) fn lifecycle(&self, environment: &Environment) -> Result<Lifecycle, Failure> {
        self.target.lifecycle(environment)
    }

    pub(crate) fn is_for_people(&self) -> bool {
        self.output == Format::Table
    }

    /// Shows it as JSON, or to people as `describe` says.
    pub(crate) fn show<T: Serialize + ?Sized>(
        &self,
        what: &T,
        output: &mut Output<'_>,
        describe: impl FnOnce(&T) -> String,
    ) -> Result<u8, Failure> {
        match self.output {
            Format::Table => output.line(&describe(what))?,
            Format::Json => output.json(what)?,
        }
        Ok(0)
    }
}

/// What is on all pages of a list, from the first on.
pub(crate) async fn all_pages<T>(
    fetch: impl AsyncFn(u64) -> Result<(Vec<T>, Pagination), ClientError>,
) -> Result<Vec<T>, ClientError> {
    let mut all = Vec::new();
    let mut page = 1;
    loop {
        let (items, pagination) = fetch(page).await?;
        all.extend(items);
        if !pagination.has_next_page {
            return Ok(all);
        }
        page += 1;
    }
}

/// One thing for people: a line for each of its properties that has a value.
pub(crate) fn describe<'a>(properties: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut text = String::new();
    for (name, value) in properties {
        if !value.is_empty() {
            writeln!(text, "{name:<12}{value}").expect("writing to a string succeeds");
        }
    }
    text.trim_end().to_owned()
}

/// A cell of a table, for what may be unknown.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_page_is_fetched_once() {
        let fetch =
            async |page: u64| Ok((vec![page * 10, page * 10 + 1], Pagination::new(page, 2, 5)));
        assert_eq!(all_pages(fetch).await.unwrap(), [10, 11, 20, 21, 30, 31]);
    }

    #[test]
    fn what_has_no_value_has_no_line() {
        let properties = [("id", "s"), ("name", ""), ("state", "Ready")];
        let text = describe(properties.map(|(name, value)| (name, value.to_owned())));
        assert_eq!(text, "id          s\nstate       Ready");
    }
}
