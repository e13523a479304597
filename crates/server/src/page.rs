//! Long lists, one page at a time.

use osb_api::lifecycle::Pagination;

use crate::{error::ApiError, query};

const MAX_SIZE: u64 = 200;

/// The part of a list that a page shows.
pub(crate) fn cut<T>(all: &[T], page: u64, size: u64) -> (&[T], Pagination) {
    let skipped = page.saturating_sub(1).saturating_mul(size);
    let from = usize::try_from(skipped).unwrap_or(usize::MAX).min(all.len());
    let rest = all.get(from..).unwrap_or_default();
    let length = usize::try_from(size).unwrap_or(usize::MAX).min(rest.len());
    let shown = rest.get(..length).unwrap_or_default();
    (shown, Pagination::new(page, size, all.len() as u64))
}

pub(crate) fn number(text: &str) -> Result<u64, ApiError> {
    query::number("page", text, 1, u64::MAX)
}

pub(crate) fn size(text: &str) -> Result<u64, ApiError> {
    query::number("pageSize", text, 1, MAX_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_on_one_page() {
        let all = [1, 2, 3, 4, 5];
        assert_eq!(cut(&all, 1, 2).0, [1, 2]);
        assert_eq!(cut(&all, 3, 2).0, [5]);
        for (page, size) in [(4, 2), (u64::MAX, 200), (2, u64::MAX)] {
            assert!(cut(&all, page, size).0.is_empty(), "page {page} of {size}");
        }
        assert!(cut(&all, 2, 2).1.has_next_page && !cut(&all, 3, 2).1.has_next_page);
    }
}
