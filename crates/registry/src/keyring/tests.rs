use secrecy::ExposeSecret as _;

use super::*;

fn keyring(config: &str) -> (tempfile::TempDir, Keyring) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    fs::write(&path, config).unwrap();
    let helpers = vec![directory.path().to_owned()];
    let settings = LoginSettings { config: Some(path), helpers, variables: Vec::new() };
    (directory, Keyring::new(settings))
}

fn shown(found: Option<Credential>) -> String {
    match found {
        Some(Credential::Basic(login)) => {
            format!("{}:{}", login.username, login.password.expose_secret())
        }
        Some(Credential::Identity(token)) => format!("identity {}", token.expose_secret()),
        None => "nothing".to_owned(),
    }
}

#[test]
fn logins_are_found_however_their_registry_is_written() {
    let config = format!(
        r#"{{"HttpHeaders": {{}}, "auths": {{
            "https://index.docker.io/v1/": {{"auth": "{}"}},
            "r.test:5000": {{"auth": "{}"}},
            "https://s.test/v2/": {{"identitytoken": "long", "auth": "{}"}},
            "t.test": {{"username": "t", "password": "p"}},
            "empty.test": {{}}
        }}}}"#,
        STANDARD.encode("me:hub:pw"),
        STANDARD.encode("you:pw\0\0"),
        STANDARD.encode("00000000:"),
    );
    let (_directory, keyring) = keyring(&config);
    for (registry, expected) in [
        ("docker.io", "me:hub:pw"),
        ("r.test:5000", "you:pw"),
        ("s.test", "identity long"),
        ("t.test", "t:p"),
        ("empty.test", "nothing"),
        ("r.test", "nothing"),
        ("evil-r.test:5000", "nothing"),
        ("test", "nothing"),
    ] {
        assert_eq!(shown(keyring.find(registry).unwrap()), expected, "{registry}");
    }
}

#[test]
fn helpers_are_asked_before_the_file() {
    let config = format!(
        r#"{{"credsStore": "store", "credHelpers": {{"r.test": "own", "gone.test": "gone"}},
            "auths": {{"old.test": {{"auth": "{}"}}}}}}"#,
        STANDARD.encode("old:pw")
    );
    let (directory, keyring) = keyring(&config);
    for (name, script) in [
        ("own", r#"read -r s; echo "{\"Username\":\"own\",\"Secret\":\"$s\"}""#),
        (
            "store",
            r#"read -r s; case "$s" in old.test) echo credentials not found; exit 1;; esac
            echo "{\"Username\":\"store\",\"Secret\":\"$s\"}""#,
        ),
    ] {
        let path = directory.path().join(format!("docker-credential-{name}"));
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_mode(&path, 0o755).unwrap();
    }
    for (registry, expected) in [
        ("r.test", "own:r.test"),
        ("docker.io", "store:https://index.docker.io/v1/"),
        ("old.test", "old:pw"),
    ] {
        assert_eq!(shown(keyring.find(registry).unwrap()), expected);
    }
    let error = keyring.find("gone.test").unwrap_err();
    let error = osb_core::Chain(&error).to_string();
    assert!(error.contains("docker-credential-gone"), "{error}");
}

#[test]
fn a_file_that_is_not_there_has_no_logins_and_one_that_is_broken_keeps_its_secrets() {
    let (directory, broken) = keyring("{\"auths\": {\"r.test\": {\"auth\": \"c2VjcmV0\"}}");
    let error = broken.find("r.test").unwrap_err().to_string();
    assert!(error.contains("config.json") && error.contains("line 1"), "{error}");
    fs::remove_file(directory.path().join("config.json")).unwrap();
    assert_eq!(shown(broken.find("r.test").unwrap()), "nothing");
    let (_directory, odd) = keyring(r#"{"auths": {"r.test": {"auth": "c2VjcmV0"}}}"#);
    let error = odd.find("r.test").unwrap_err().to_string();
    assert!(error.contains("base64") && !error.contains("c2VjcmV0"), "{error}");
}
