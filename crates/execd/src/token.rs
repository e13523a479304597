//! Who may call.

use http::HeaderMap;
use osb_api::headers;
use osb_core::Token;
use subtle::ConstantTimeEq;

/// Whether the request carries the token, compared in a time that says nothing about it.
pub(crate) fn admits(token: Option<&Token>, headers: &HeaderMap) -> bool {
    token.is_none_or(|token| {
        headers
            .get(headers::EXECD_TOKEN)
            .is_some_and(|given| given.as_bytes().ct_eq(token.reveal().as_bytes()).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_opens() {
        let token = Token::new("secret");
        let with = |value: &'static str| {
            HeaderMap::from_iter([(
                http::HeaderName::from_static(headers::EXECD_TOKEN),
                http::HeaderValue::from_static(value),
            )])
        };
        assert!(admits(Some(&token), &with("secret")));
        for wrong in ["", "secre", "secret2", "SECRET"] {
            assert!(!admits(Some(&token), &with(wrong)), "{wrong:?}");
        }
        assert!(!admits(Some(&token), &HeaderMap::new()));
        assert!(admits(None, &HeaderMap::new()));
    }
}
