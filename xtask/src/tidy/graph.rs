//! Which crate may depend on which.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::Finding;
use crate::checkout;

/// What `core` must never pull in: it decides, others do.
const NOT_IN_CORE: [&str; 6] = ["axum", "bollard", "hyper", "kube", "kube-client", "tokio"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Normal,
    Dev,
    Build,
}

/// The packages of the workspace with all that they depend on, as cargo resolved them.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// By id.
    packages: BTreeMap<String, Package>,
    edges: Vec<Edge>,
}

#[derive(Debug, Clone)]
struct Package {
    name: String,
    /// Where its manifest is, if it is one of ours.
    manifest: Option<String>,
}

#[derive(Debug)]
struct Edge {
    from: String,
    to: String,
    kind: Kind,
}

impl Graph {
    pub(crate) fn read() -> Result<Self> {
        let json = checkout::output(checkout::tool("cargo").args([
            "metadata",
            "--format-version",
            "1",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ]))?;
        let metadata: Metadata =
            serde_json::from_slice(&json).context("cannot understand cargo metadata")?;
        Ok(Self::new(metadata))
    }

    fn new(metadata: Metadata) -> Self {
        let root = checkout::root().to_string_lossy().into_owned();
        let ours: BTreeSet<_> = metadata.workspace_members.into_iter().collect();
        let mut edges = Vec::new();
        for node in metadata.resolve.nodes {
            for dependency in node.deps {
                for kind in dependency.dep_kinds {
                    let kind = match kind.kind.as_deref() {
                        Some("dev") => Kind::Dev,
                        Some("build") => Kind::Build,
                        _ => Kind::Normal,
                    };
                    edges.push(Edge { from: node.id.clone(), to: dependency.pkg.clone(), kind });
                }
            }
        }
        let packages = metadata
            .packages
            .into_iter()
            .map(|package| {
                let manifest = ours.contains(&package.id).then(|| {
                    let path = package.manifest_path.trim_start_matches(&root);
                    path.trim_start_matches('/').to_owned()
                });
                (package.id, Package { name: package.name, manifest })
            })
            .collect();
        Self { packages, edges }
    }

    pub(crate) fn check(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for edge in &self.edges {
            let (Some(from), Some(to)) =
                (self.packages.get(&edge.from), self.packages.get(&edge.to))
            else {
                continue;
            };
            let (Some(manifest), Some(_)) = (&from.manifest, &to.manifest) else { continue };
            if let Some(rule) = broken_rule(&from.name, &to.name, edge.kind) {
                findings.push(Finding::in_file(
                    manifest,
                    format!("{} depends on {}, but {rule}", from.name, to.name),
                ));
            }
        }
        for (id, core) in self.packages.iter().filter(|(_, p)| p.name == "osb-core") {
            let within: BTreeSet<&str> = self.normal_closure(id);
            for name in NOT_IN_CORE.iter().filter(|name| within.contains(**name)) {
                let manifest = core.manifest.as_deref().unwrap_or("Cargo.toml");
                let message = format!("osb-core pulls in {name}, but it decides and does no I/O");
                findings.push(Finding::in_file(manifest, message));
            }
        }
        findings.sort();
        findings.dedup();
        findings
    }

    /// Names of all packages that a build of `id` needs, without tests and build scripts.
    fn normal_closure(&self, id: &str) -> BTreeSet<&str> {
        let mut seen = BTreeSet::from([id]);
        let mut open = vec![id];
        while let Some(from) = open.pop() {
            for edge in self.edges.iter().filter(|e| e.from == from && e.kind == Kind::Normal) {
                if seen.insert(&edge.to) {
                    open.push(&edge.to);
                }
            }
        }
        seen.iter().filter_map(|id| self.packages.get(*id)).map(|p| p.name.as_str()).collect()
    }
}

fn broken_rule(from: &str, to: &str, kind: Kind) -> Option<&'static str> {
    match (from, to) {
        // A crate may name itself in its dev-dependencies to switch its own features on.
        _ if from == to => None,
        ("osb-api", _) => Some("the wire types depend on no crate of ours"),
        ("osb-core", to) if to != "osb-api" => Some("the core knows the wire types alone"),
        ("osb-cli", "osb-server" | "osb-bundle") => None,
        (_, "osb-server" | "osb-cli") => Some("only the binary knows the server"),
        (_, "osb-bundle") if kind != Kind::Dev => Some("only the binary carries execd"),
        _ => None,
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<RawPackage>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct RawPackage {
    id: String,
    name: String,
    manifest_path: String,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDependency>,
}

#[derive(Deserialize)]
struct NodeDependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph of packages; those that begin with `osb-` are ours.
    fn graph(packages: &[&str], edges: &[(&str, &str, Kind)]) -> Graph {
        let packages = packages
            .iter()
            .map(|name| {
                let manifest = name.starts_with("osb-").then(|| format!("{name}/Cargo.toml"));
                ((*name).to_owned(), Package { name: (*name).to_owned(), manifest })
            })
            .collect();
        let edges = edges
            .iter()
            .map(|(from, to, kind)| Edge {
                from: (*from).to_owned(),
                to: (*to).to_owned(),
                kind: *kind,
            })
            .collect();
        Graph { packages, edges }
    }

    fn findings(edges: &[(&str, &str, Kind)]) -> usize {
        let ids: BTreeSet<&str> = edges.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
        graph(&ids.into_iter().collect::<Vec<_>>(), edges).check().len()
    }

    #[test]
    fn each_direction_that_is_forbidden_fails() {
        for (from, to, kind) in [
            ("osb-api", "osb-core", Kind::Normal),
            ("osb-api", "osb-sys", Kind::Dev),
            ("osb-core", "osb-sys", Kind::Normal),
            ("osb-native", "osb-server", Kind::Normal),
            ("osb-server", "osb-cli", Kind::Dev),
            ("osb-native", "osb-bundle", Kind::Normal),
        ] {
            assert_eq!(findings(&[(from, to, kind)]), 1, "{from} -> {to}");
        }
    }

    #[test]
    fn the_directions_of_the_design_pass() {
        let edges = [
            ("osb-core", "osb-api", Kind::Normal),
            ("osb-cli", "osb-server", Kind::Normal),
            ("osb-cli", "osb-bundle", Kind::Normal),
            ("osb-native", "osb-bundle", Kind::Dev),
            ("osb-server", "tokio", Kind::Normal),
            ("osb-core", "tokio", Kind::Dev),
        ];
        assert_eq!(findings(&edges), 0);
    }

    #[test]
    fn core_stays_free_of_io_even_through_others() {
        let edges = [("osb-core", "stream", Kind::Normal), ("stream", "tokio", Kind::Normal)];
        assert_eq!(findings(&edges), 1);
    }
}
