//! The bindings in force, found by request.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use http::{HeaderName, header, request::Parts, uri::PathAndQuery};
use osb_api::egress::{Binding, CredentialAuth, Match, Scheme};
use secrecy::SecretString;

use super::{
    armed::{Armed, AuthScheme, Injection, Plan, Stand, Unfit},
    credential::Held,
    host::HostPattern,
    path::{self, PathPattern},
    redact::Redactor,
    source::{Source, SourceError, Sources},
};
use crate::{Name, Readings, policy::requests::Pattern};

/// What a vault holds at one moment. It never changes; a change of the vault is another one.
#[derive(Debug, Default)]
pub struct Active {
    /// In the order of their names.
    bindings: Vec<Arc<Bound>>,
    /// Positions in that list.
    exact: HashMap<String, Vec<usize>>,
    below: HashMap<String, Vec<usize>>,
}

/// Whose credentials a request gets.
#[derive(Debug)]
pub enum Found<'a> {
    /// Nobody's: it is passed on without.
    None,
    One(&'a Arc<Bound>),
    /// Those of several bindings, of which this is one, so it gets none and goes nowhere.
    Ambiguous(&'a Arc<Bound>),
    /// A server may take the path for another one than the binding is for: it goes nowhere.
    Unsafe(&'a Arc<Bound>),
    /// The binding is for plain HTTP, and the operator no longer releases secrets there: it goes
    /// nowhere.
    Plain(&'a Arc<Bound>),
}

/// A binding whose secrets are known to the vault, or to where they come from.
pub struct Bound {
    name: String,
    schemes: Vec<Scheme>,
    hosts: Vec<HostPattern>,
    methods: Vec<String>,
    paths: Vec<PathPattern>,
    /// The same, for what a path may be read as.
    meant: Vec<Pattern>,
    plan: Plan,
    credentials: Vec<Arc<Held>>,
    /// At once, if no secret has to be fetched.
    ready: Option<Arc<Armed>>,
    /// What was fetched last.
    fetched: Mutex<Option<Arc<Armed>>>,
    /// Whether nothing could be fetched the last time.
    fails: AtomicBool,
    sources: Arc<Sources>,
}

/// Why a binding cannot be used now. The request must not be sent.
#[derive(Debug, thiserror::Error)]
pub enum NotArmed {
    #[error("the credential {name:?} cannot be had")]
    Source {
        name: String,
        /// Where it should have come from: for the operator, and for nobody inside.
        place: String,
        #[source]
        error: SourceError,
    },
    #[error(transparent)]
    Unfit(#[from] Unfit),
}

impl NotArmed {
    /// Where the secret should have come from.
    pub fn place(&self) -> Option<&str> {
        match self {
            Self::Source { place, .. } => Some(place),
            Self::Unfit(_) => None,
        }
    }
}

impl Active {
    pub(super) fn new(bindings: Vec<Arc<Bound>>) -> Self {
        let mut active = Self::default();
        for (at, bound) in bindings.iter().enumerate() {
            for host in &bound.hosts {
                let (index, name) = match host {
                    HostPattern::Exact(name) => (&mut active.exact, name),
                    HostPattern::Below(name) => (&mut active.below, name),
                };
                index.entry(name.as_str().to_owned()).or_default().push(at);
            }
        }
        Self { bindings, ..active }
    }

    /// Whether any request on a connection to this host may get credentials, so that it must be
    /// looked into.
    pub fn binds(&self, scheme: Scheme, host: &Name) -> bool {
        let speaks = |at: &usize| {
            self.bindings.get(*at).is_some_and(|bound| bound.schemes.contains(&scheme))
        };
        self.exact.get(host.as_str()).is_some_and(|all| all.iter().any(speaks))
            || self.wildcards(host).any(|at| speaks(&at))
    }

    /// The binding that this request is for.
    pub fn find(&self, scheme: Scheme, host: &Name, request: &Parts) -> Found<'_> {
        let path = request.uri.path_and_query().map_or("/", PathAndQuery::path);
        let method = request.method.as_str();
        let written = |path: &str| {
            self.matching(host, |bound| {
                let fits = bound.paths.iter().any(|pattern| pattern.matches(path));
                fits && bound.is_for(scheme, method)
            })
        };
        let found = written(path);
        let Found::One(bound) = found else { return found };
        if scheme == Scheme::Http && !bound.sources.plain_http {
            return Found::Plain(bound);
        }
        let undotted = path::undotted(path);
        if path::is_doubtful(&undotted) {
            return Found::Unsafe(bound);
        }
        // A server that leaves out a dot, decodes, or believes other headers must come to the same.
        let is_it =
            |found: Found<'_>| matches!(found, Found::One(other) if Arc::ptr_eq(other, bound));
        let same = is_it(written(&undotted))
            && path::slashed(&undotted).is_none_or(|slashed| is_it(written(&slashed)))
            && Readings::new(method, &undotted, &request.headers).all(|method, path| {
                is_it(self.matching(host, |bound| {
                    let fits = bound.meant.iter().any(|pattern| pattern.allows(path));
                    fits && bound.is_for(scheme, method)
                }))
            });
        if same { Found::One(bound) } else { Found::Unsafe(bound) }
    }

    /// What the answers of a host go through: it has been given all this, or may have been, by any
    /// binding and by the one that is used now, and may say it anywhere.
    pub fn redactor(&self, host: &Name, used: Option<&Arc<Armed>>) -> Option<Arc<Redactor>> {
        let mut given = self.given(host);
        given.retain(|other| used.is_none_or(|used| !Arc::ptr_eq(used, other)));
        given.extend(used.cloned());
        Redactor::of_all(given.iter().map(|armed| armed.redactor()))
    }

    fn given(&self, host: &Name) -> Vec<Arc<Armed>> {
        let exact = self.exact.get(host.as_str()).into_iter().flatten().copied();
        let mut all: Vec<_> = exact.chain(self.wildcards(host)).collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter().filter_map(|at| self.bindings.get(at)?.given()).collect()
    }

    /// A bound host that would no longer be allowed, if `allows` decided.
    pub fn uncovered(&self, allows: impl Fn(&Name) -> bool) -> Option<String> {
        let hosts = self.bindings.iter().flat_map(|bound| &bound.hosts);
        let mut denied = hosts.filter(|host| !host.example().is_some_and(|name| allows(&name)));
        denied.next().map(ToString::to_string)
    }

    /// The names of two bindings that the same request would be for.
    pub(super) fn collision(&self) -> Option<(&str, &str)> {
        self.bindings.iter().enumerate().find_map(|(at, one)| {
            let others = self.bindings.iter().skip(at + 1);
            let other = others.into_iter().find(|other| one.collides(other))?;
            Some((one.name.as_str(), other.name.as_str()))
        })
    }

    fn matching(&self, host: &Name, is_for: impl Fn(&Bound) -> bool) -> Found<'_> {
        let fits = |at: usize| self.bindings.get(at).filter(|bound| is_for(bound));
        let exact = self.exact.get(host.as_str()).into_iter().flatten().copied();
        let found = one(exact.filter_map(fits));
        if let Found::None = found { one(self.wildcards(host).filter_map(fits)) } else { found }
    }

    fn wildcards(&self, host: &Name) -> impl Iterator<Item = usize> {
        let domains = host.domains().filter_map(|domain| self.below.get(domain));
        domains.flatten().copied()
    }
}

fn one<'a>(mut all: impl Iterator<Item = &'a Arc<Bound>>) -> Found<'a> {
    let Some(first) = all.next() else { return Found::None };
    // A binding may have two wildcards for one host.
    if all.all(|other| Arc::ptr_eq(first, other)) {
        Found::One(first)
    } else {
        Found::Ambiguous(first)
    }
}

impl Bound {
    /// Compiles a binding that is in its normal form.
    pub(super) fn new(
        binding: &Binding,
        credentials: &BTreeMap<String, Arc<Held>>,
        sources: &Arc<Sources>,
    ) -> Result<Self, String> {
        let within = |message: String| format!("binding {:?}: {message}", binding.name);
        let mut held = Vec::new();
        let plan = plan(&binding.auth, |name| {
            let credential = credentials
                .get(name)
                .ok_or_else(|| within(format!("there is no credential {name:?}")))?;
            Ok::<_, String>(position(&mut held, credential))
        })?;
        let Match { schemes, hosts, methods, paths, ports: _ } = &binding.requests;
        let hosts = hosts.iter().map(|host| HostPattern::parse(host).map_err(|e| e.to_string()));
        let paths = paths.iter().map(|path| PathPattern::parse(path).map_err(ToOwned::to_owned));
        let paths: Vec<_> = paths.collect::<Result<_, _>>().map_err(within)?;
        let mut bound = Self {
            name: binding.name.clone(),
            schemes: schemes.clone(),
            hosts: hosts.collect::<Result<_, _>>().map_err(within)?,
            methods: methods.clone(),
            meant: paths.iter().map(Pattern::new).collect(),
            paths,
            plan,
            credentials: held,
            ready: None,
            fetched: Mutex::default(),
            fails: AtomicBool::new(false),
            sources: Arc::clone(sources),
        };
        if let Some(secrets) = bound.inline() {
            let armed = Armed::new(&bound.plan, &secrets);
            bound.ready = Some(Arc::new(armed.map_err(|error| within(error.to_string()))?));
        }
        Ok(bound)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of the credentials that it gives.
    pub fn credentials(&self) -> impl Iterator<Item = &str> {
        self.credentials.iter().map(|held| held.name.as_str())
    }

    /// Fetches the secrets that are not at hand, and makes the binding ready for requests.
    pub async fn arm(&self) -> Result<Arc<Armed>, NotArmed> {
        if let Some(ready) = &self.ready {
            return Ok(Arc::clone(ready));
        }
        let mut secrets = Vec::with_capacity(self.credentials.len());
        for held in &self.credentials {
            let secret = self.sources.secret(&held.source).await;
            secrets.push(secret.map_err(|error| NotArmed::Source {
                name: held.name.clone(),
                place: format!("{:?}", held.source),
                error,
            })?);
        }
        let armed = Arc::new(Armed::new(&self.plan, &secrets)?);
        *self.fetched() = Some(Arc::clone(&armed));
        Ok(armed)
    }

    /// Whether it is new that its secrets cannot be had, or that they can.
    pub fn turned(&self, fails: bool) -> bool {
        self.fails.swap(fails, Relaxed) != fails
    }

    /// What requests got, or may have got, as far as it is at hand.
    fn given(&self) -> Option<Arc<Armed>> {
        self.ready.clone().or_else(|| self.fetched().clone())
    }

    fn fetched(&self) -> MutexGuard<'_, Option<Arc<Armed>>> {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inline(&self) -> Option<Vec<Arc<SecretString>>> {
        let secret = |held: &Arc<Held>| match &held.source {
            Source::Inline(secret) => Some(Arc::clone(secret)),
            Source::Env(_) | Source::File(_) | Source::Remote { .. } => None,
        };
        self.credentials.iter().map(secret).collect()
    }

    /// Whether it is for such requests, if it is for their path.
    fn is_for(&self, scheme: Scheme, method: &str) -> bool {
        self.schemes.contains(&scheme) && self.methods.iter().any(|known| known == method)
    }

    fn collides(&self, other: &Self) -> bool {
        self.schemes.iter().any(|scheme| other.schemes.contains(scheme))
            && self.methods.iter().any(|method| other.methods.contains(method))
            && self.hosts.iter().any(|host| other.hosts.iter().any(|o| host.collides(o)))
            && self.paths.iter().any(|path| other.paths.iter().any(|o| path.collides(o)))
    }
}

/// Where a credential is in the list, which gets it if it is not there.
fn position(held: &mut Vec<Arc<Held>>, credential: &Arc<Held>) -> usize {
    held.iter().position(|known| Arc::ptr_eq(known, credential)).unwrap_or_else(|| {
        held.push(Arc::clone(credential));
        held.len() - 1
    })
}

/// What an auth comes to. `secret` says where a credential will be.
fn plan(
    auth: &CredentialAuth,
    mut secret: impl FnMut(&str) -> Result<usize, String>,
) -> Result<Plan, String> {
    let mut injections = Vec::new();
    let mut inject = |header, scheme, secret| injections.push(Injection { header, scheme, secret });
    let named = |name: &str| HeaderName::from_bytes(name.as_bytes()).map_err(|e| e.to_string());
    match auth {
        CredentialAuth::Bearer { credential, .. } => {
            inject(header::AUTHORIZATION, AuthScheme::Bearer, secret(credential)?);
        }
        CredentialAuth::Basic { credential, .. } => {
            inject(header::AUTHORIZATION, AuthScheme::Basic, secret(credential)?);
        }
        CredentialAuth::ApiKey { name, credential, .. } => {
            inject(named(name)?, AuthScheme::None, secret(credential)?);
        }
        CredentialAuth::CustomHeaders { headers, .. } => {
            for header in headers {
                inject(named(&header.name)?, AuthScheme::None, secret(&header.credential)?);
            }
        }
        CredentialAuth::Passthrough { .. } => {}
    }
    let mut substitutions = Vec::new();
    for substitution in auth.substitutions() {
        substitutions.push(Stand {
            placeholder: substitution.placeholder.clone(),
            places: substitution.places.clone(),
            secret: secret(&substitution.credential)?,
        });
    }
    Ok(Plan { injections, substitutions })
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
