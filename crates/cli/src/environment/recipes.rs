//! What is in `environments/`, carried along.

use crate::image::build::Carried;

/// An image that `osb` knows how to build.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) name: &'static str,
    /// What it is for.
    pub(super) purpose: &'static str,
    /// What the image is called; the first is what is looked for.
    pub(super) images: &'static [&'static str],
    /// The image that it begins with, and the argument that names another.
    pub(super) base: &'static str,
    pub(super) base_arg: &'static str,
}

impl Recipe {
    pub(super) fn files(&self) -> &'static [Carried] {
        let found = FILES.iter().find(|(name, _)| *name == self.name);
        found.map_or(&[], |(_, files)| files)
    }
}

// `FILES`: for each directory in `environments/` what is in it.
include!(concat!(env!("OUT_DIR"), "/environments.rs"));

/// All of them, in the order in which they are built: what is shared is built with the first.
pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        name: "base",
        purpose: "any command: Debian with Python, Node, git, curl and compilers",
        images: &["opensandbox/base:latest"],
        base: "debian:bookworm",
        base_arg: "DEBIAN",
    },
    Recipe {
        name: "code-interpreter",
        purpose: "the code interpreter of the published clients: Python, JavaScript, TypeScript, Java, Go, Bash",
        images: CODE_INTERPRETER,
        base: "debian:bookworm",
        base_arg: "DEBIAN",
    },
];

/// With the names by which published clients and their examples ask for it.
const CODE_INTERPRETER: &[&str] = &[
    "opensandbox/code-interpreter:latest",
    "opensandbox/code-interpreter:v1.0.2",
    "opensandbox/code-interpreter:v1.1.0",
];

pub(super) fn find(name: &str) -> Option<&'static Recipe> {
    RECIPES.iter().find(|recipe| recipe.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_is_a_recipe_and_has_a_dockerfile() {
        let names: Vec<_> = RECIPES.iter().map(|recipe| recipe.name).collect();
        let directories: Vec<_> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, directories);
        for recipe in RECIPES {
            let dockerfile = recipe.files().iter().find(|file| file.path == "Dockerfile").unwrap();
            let text = str::from_utf8(dockerfile.content).unwrap();
            let base = format!("ARG {}={}\n", recipe.base_arg, recipe.base);
            assert!(text.contains(&base), "{}", recipe.name);
        }
    }

    #[test]
    fn programs_stay_programs() {
        let recipe = find("code-interpreter").unwrap();
        let file = |path: &str| recipe.files().iter().find(|file| file.path == path).unwrap();
        assert!(file("opt/code-interpreter.sh").is_executable);
        assert!(!file("requirements.txt").is_executable);
        assert!(find("nonexistent").is_none());
    }
}
