use http::{Request, Uri, uri::PathAndQuery};
use osb_api::ports;

/// Some runtimes name execd itself as a port behind its own proxy. Such a request is for the same
/// routes, so it is answered here instead of over another connection.
pub(crate) fn enter_own_proxy<B>(request: &mut Request<B>) {
    while let Some(uri) = own_route(request.uri()) {
        *request.uri_mut() = uri;
    }
}

fn own_route(uri: &Uri) -> Option<Uri> {
    let rest = uri.path_and_query()?.as_str().strip_prefix("/proxy/")?;
    let rest = rest.strip_prefix(&ports::EXECD.to_string())?;
    let route = match rest.chars().next() {
        None => "/".to_owned(),
        Some('?') => format!("/{rest}"),
        Some('/') => rest.to_owned(),
        Some(_) => return None,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(route).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &'static str, expected: Option<&str>) {
        let route = own_route(&Uri::from_static(path));
        assert_eq!(route.map(|uri| uri.to_string()).as_deref(), expected);
    }

    #[test]
    fn only_our_own_port_is_entered() {
        check("/proxy/44772/files/info?path=%2Fa", Some("/files/info?path=%2Fa"));
        check("/proxy/44772/ping", Some("/ping"));
        check("/proxy/44772", Some("/"));
        check("/proxy/44772?a=b", Some("/?a=b"));
        check("/proxy/447721/ping", None);
        check("/proxy/8080/ping", None);
        check("/ping", None);
    }
}
