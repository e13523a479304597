//! Kernelspecs: how an image says which kernels it has.

use std::{
    borrow::Cow,
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
};

use osb_sys::fs;
use serde::Deserialize;

use crate::{driven::Birth, env, expand};

/// Where a kernel wants to find how to be spoken to.
const CONNECTION_FILE: &str = "{connection_file}";

/// The most kernelspecs that are looked at in one place.
const SPECS: usize = 256;

/// The most that is filled in for names in the words, and in the variables, of one kernelspec. The
/// system starts no program with more.
const ROOM: usize = 2 << 20;

/// A kernel of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    /// The name of its directory.
    name: String,
    pub(super) interrupt: Interrupt,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    directory: PathBuf,
}

/// How the cell of a kernel is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Interrupt {
    #[default]
    Signal,
    Message,
}

/// `kernel.json`.
#[derive(Debug, Deserialize)]
struct File {
    argv: Vec<String>,
    #[serde(default)]
    language: String,
    #[serde(default)]
    interrupt_mode: Option<Interrupt>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

impl Spec {
    /// The kernel of a language: the one of that name, or else the first that says that it is one.
    /// This looks at files.
    pub(crate) fn find(language: &str, env: &BTreeMap<OsString, OsString>) -> Option<Self> {
        let places = places(env);
        let own = places.iter().find_map(|place| read(&place.join(language)));
        own.map(|(spec, _)| spec).or_else(|| {
            let mut all = places.iter().flat_map(|place| {
                let names: BTreeSet<String> = fs::some_names(place, SPECS).into_iter().collect();
                names.into_iter().filter_map(|name| read(&place.join(name)))
            });
            all.find(|(_, says)| says.eq_ignore_ascii_case(language)).map(|(spec, _)| spec)
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What to start, where this file says how to speak with it.
    pub(super) fn command(&self, connection_file: &Path) -> io::Result<Vec<String>> {
        let prefix = self.prefix();
        let known = [
            (CONNECTION_FILE, connection_file.to_string_lossy()),
            ("{resource_dir}", self.directory.to_string_lossy()),
            ("{prefix}", prefix.to_string_lossy()),
        ];
        let mut room = ROOM;
        let words = self.argv.iter().map(|word| fill_in(word, &known, &mut room));
        let mut argv = words.collect::<Option<Vec<_>>>().ok_or_else(|| too_long("argv"))?;
        // Whatever Python is meant, it is the one that the kernelspec was installed with, and that
        // need not be the first in PATH.
        if let Some(name) = argv.first_mut().filter(|name| name.starts_with("python")) {
            let own = prefix.join("bin").join(&*name);
            if own.exists() {
                *name = own.to_string_lossy().into_owned();
            }
        }
        Ok(argv)
    }

    /// What it begins with.
    pub(super) fn birth(&self, birth: Birth) -> io::Result<Birth> {
        let Birth { cwd, mut env } = birth;
        let room = Cell::new(Some(ROOM));
        // Of what there was before, not of each other.
        let known = |name: &str| {
            let value = env.get(OsStr::new(name))?.to_str()?;
            room.set(room.get().and_then(|room| room.checked_sub(value.len())));
            room.get().map(|_| value.to_owned())
        };
        let own: Vec<_> = self
            .env
            .iter()
            .map(|(name, value)| (name.into(), expand::variables(value, known).into()))
            .collect();
        room.get().ok_or_else(|| too_long("env"))?;
        env.extend(own);
        Ok(Birth { cwd, env })
    }

    /// Where it was installed: `/opt/venv`, if this is `/opt/venv/share/jupyter/kernels/python3`.
    fn prefix(&self) -> &Path {
        self.directory.ancestors().nth(4).unwrap_or_else(|| Path::new("/usr"))
    }
}

/// A word with what stands for these names, once. Nothing if that takes more than there is room for.
fn fill_in(word: &str, known: &[(&str, Cow<'_, str>)], room: &mut usize) -> Option<String> {
    let (mut out, mut rest) = (String::with_capacity(word.len()), word);
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let found = known.iter().find_map(|(name, value)| Some((value, from.strip_prefix(name)?)));
        if let Some((value, after)) = found {
            *room = room.checked_sub(value.len())?;
            out.push_str(value);
            rest = after;
        } else {
            out.push('{');
            rest = from.strip_prefix('{').unwrap_or_default();
        }
    }
    out.push_str(rest);
    Some(out)
}

fn too_long(what: &str) -> io::Error {
    let text = format!("`{what}` in kernel.json becomes longer than {ROOM} bytes: make it shorter");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// A kernelspec and its language, if there is one here.
fn read(directory: &Path) -> Option<(Spec, String)> {
    let content = fs::read_small(directory.join("kernel.json")).ok()?;
    let File { argv, language, interrupt_mode, env } = serde_json::from_slice(&content).ok()?;
    if argv.is_empty() || !argv.iter().any(|word| word.contains(CONNECTION_FILE)) {
        return None;
    }
    let name = directory.file_name()?.to_string_lossy().into_owned();
    let interrupt = interrupt_mode.unwrap_or_default();
    Some((Spec { name, interrupt, argv, env, directory: directory.to_owned() }, language))
}

/// Where kernelspecs may be, in the order in which Jupyter looks for them. What Python knows as its
/// prefix is guessed from `PATH`, for nobody here asks Python.
fn places(env: &BTreeMap<OsString, OsString>) -> Vec<PathBuf> {
    let get = |name: &str| env.get(OsStr::new(name)).filter(|value| !value.is_empty());
    let mut data: Vec<PathBuf> = Vec::new();
    data.extend(get("JUPYTER_PATH").into_iter().flat_map(std::env::split_paths));
    let home = get(env::HOME).map_or_else(|| Path::new("/root"), Path::new);
    let of_user = get("XDG_DATA_HOME").map_or_else(|| home.join(".local/share"), PathBuf::from);
    data.push(get("JUPYTER_DATA_DIR").map_or_else(|| of_user.join("jupyter"), PathBuf::from));
    let prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(get).map(PathBuf::from);
    let path = get(env::PATH).into_iter().flat_map(std::env::split_paths);
    let programs = path.filter(|place| place.ends_with("bin"));
    let around = programs.filter_map(|place| place.parent().map(Path::to_owned));
    data.extend(prefixes.chain(around).map(|prefix| prefix.join("share/jupyter")));
    data.extend(["/usr/local/share/jupyter", "/usr/share/jupyter"].map(PathBuf::from));
    let mut seen = BTreeSet::new();
    data.retain(|place| place.is_absolute() && seen.insert(place.clone()));
    data.into_iter().map(|place| place.join("kernels")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    fn variables(all: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        all.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn install(place: &Path, name: &str, content: &serde_json::Value) {
        let directory = place.join("share/jupyter/kernels").join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("kernel.json"), content.to_string()).unwrap();
    }

    /// An image, and the variables with which it is looked at.
    fn image() -> (TempDir, BTreeMap<OsString, OsString>) {
        let image = tempfile::tempdir().unwrap();
        let path = format!("{}/bin:/usr/nowhere", image.path().display());
        let env = variables(&[("PATH", &path), ("HOME", "/nowhere")]);
        (image, env)
    }

    #[test]
    fn jupyter_finds_them_in_the_same_order() {
        let env = variables(&[
            ("JUPYTER_PATH", "/a:/b"),
            ("HOME", "/home/me"),
            ("PATH", "/opt/venv/bin:/usr/local/bin:relative/bin:/usr/games"),
        ]);
        let expected = [
            "/a/kernels",
            "/b/kernels",
            "/home/me/.local/share/jupyter/kernels",
            "/opt/venv/share/jupyter/kernels",
            "/usr/local/share/jupyter/kernels",
            "/usr/share/jupyter/kernels",
        ];
        assert_eq!(places(&env), expected.map(PathBuf::from));
    }

    #[test]
    fn the_name_counts_before_what_a_kernelspec_says_of_itself() {
        let (image, env) = image();
        let kernel =
            |program: &str| json!({"argv": [program, "{connection_file}"], "language": "Java"});
        install(image.path(), "zulu", &kernel("second"));
        assert_eq!(Spec::find("java", &env).unwrap().name, "zulu");
        install(image.path(), "java", &kernel("first"));
        assert_eq!(Spec::find("java", &env).unwrap().name, "java");
        assert_eq!(Spec::find("go", &env), None);
    }

    #[test]
    fn what_is_no_kernelspec_is_passed_over() {
        let (image, env) = image();
        install(image.path(), "java", &json!({"argv": [], "language": "java"}));
        install(image.path(), "a", &json!({"argv": ["deaf"], "language": "java"}));
        install(image.path(), "b", &json!(["java"]));
        let directory = image.path().join("share/jupyter/kernels/c/kernel.json");
        fs::create_dir_all(directory).unwrap();
        assert_eq!(Spec::find("java", &env), None);
    }

    #[test]
    fn words_and_variables_are_filled_in() {
        let (image, mut env) = image();
        let content = json!({
            "argv": ["python3", "-m", "kernel", "-f={connection_file}", "{resource_dir}"],
            "language": "python",
            "interrupt_mode": "message",
            "env": {"A": "${HOME}/a", "B": "$MISSING"},
        });
        install(image.path(), "python3", &content);
        let spec = Spec::find("python", &env).unwrap();
        let directory = image.path().join("share/jupyter/kernels/python3");
        let command = spec.command(Path::new("/run/c.json")).unwrap();
        let resources = directory.to_str().unwrap();
        assert_eq!(command, ["python3", "-m", "kernel", "-f=/run/c.json", resources]);
        fs::create_dir_all(image.path().join("bin")).unwrap();
        fs::write(image.path().join("bin/python3"), "").unwrap();
        let own = image.path().join("bin/python3");
        assert_eq!(spec.command(Path::new("/c")).unwrap()[0], own.to_str().unwrap());
        env.insert("A".into(), "old".into());
        let birth = spec.birth(Birth { cwd: "/".into(), env }).unwrap();
        assert_eq!(birth.env[OsStr::new("A")], "/nowhere/a");
        assert_eq!(birth.env[OsStr::new("B")], "$MISSING");
        assert_eq!(spec.interrupt, Interrupt::Message);
    }

    #[test]
    fn what_becomes_endless_is_refused() {
        let (image, mut env) = image();
        let bomb: BTreeMap<String, String> = (1..30)
            .map(|n| (format!("A{n:02}"), format!("${{A{:02}}}", n - 1).repeat(10)))
            .collect();
        let words = ["{connection_file}".repeat(55_000), "{prefix}{other}".to_owned()];
        install(image.path(), "java", &json!({"argv": words, "env": bomb, "language": "java"}));
        let spec = Spec::find("java", &env).unwrap();
        env.insert("A00".into(), "x".repeat(1000).into());
        let birth = spec.birth(Birth { cwd: "/".into(), env: env.clone() }).unwrap();
        assert_eq!(birth.env[OsStr::new("A01")].len(), 10_000);
        assert_eq!(birth.env[OsStr::new("A02")], *"${A01}".repeat(10));
        env.insert("A00".into(), "x".repeat(ROOM / 10 + 1).into());
        let refused = spec.birth(Birth { cwd: "/".into(), env }).unwrap_err().to_string();
        assert!(refused.contains("`env` in kernel.json becomes longer than"), "{refused}");
        let once = spec.command(Path::new("{prefix}")).unwrap();
        assert_eq!(once[0], "{prefix}".repeat(55_000));
        assert_eq!(once[1], format!("{}{{other}}", image.path().display()));
        let long = "{resource_dir}".repeat(20);
        assert!(spec.command(Path::new(&long)).unwrap_err().to_string().contains("`argv`"));
    }
}
