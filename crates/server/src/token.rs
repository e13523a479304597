use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use osb_core::Token;

/// A secret that opens one sandbox.
pub(crate) fn mint() -> Result<Token, getrandom::Error> {
    random::<24>().map(Token::new)
}

/// `N` random bytes in base64url.
pub(crate) fn random<const N: usize>() -> Result<String, getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
