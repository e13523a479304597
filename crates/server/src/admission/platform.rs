use osb_api::lifecycle::Platform;

use crate::error::ApiError;

/// The processor of this machine as the wire spells it.
const HERE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

pub(super) fn admit(platform: &Platform) -> Result<Platform, ApiError> {
    let os = platform.os.trim().to_ascii_lowercase();
    let arch = platform.arch.trim().to_ascii_lowercase();
    if !["linux", "windows"].contains(&os.as_str()) || !["amd64", "arm64"].contains(&arch.as_str())
    {
        return Err(ApiError::invalid(
            "platform.os must be linux or windows, and platform.arch amd64 or arm64",
        ));
    }
    if os != "linux" || arch != HERE {
        return Err(ApiError::invalid(format!("this server runs linux/{HERE}, not {os}/{arch}")));
    }
    Ok(Platform { os, arch })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(os: &str, arch: &str) -> Result<Platform, ApiError> {
        admit(&Platform { os: os.to_owned(), arch: arch.to_owned() })
    }

    #[test]
    fn only_this_machine_is_offered() {
        let here = check(" Linux ", &HERE.to_uppercase()).expect("this machine");
        assert_eq!((here.os.as_str(), here.arch.as_str()), ("linux", HERE));
        let other = if HERE == "amd64" { "arm64" } else { "amd64" };
        for (os, arch) in [("windows", HERE), ("linux", other), ("plan9", HERE), ("linux", "")] {
            assert!(check(os, arch).is_err(), "{os}/{arch} was accepted");
        }
    }
}
