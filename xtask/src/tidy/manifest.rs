//! Reads as much of a `Cargo.toml` as the layering rules need: which table names which crate.
//!
//! Line by line, for the style this repository keeps: one dependency a line, as `name.workspace =
//! true` or `name = { workspace = true, … }`, or a table `[dependencies.name]`.

/// A dependency as a manifest names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// The package's name.
    pub name: String,
    /// Whether only tests, benches and examples see it.
    pub is_dev: bool,
    /// Whether version and source come from the workspace's table.
    pub is_inherited: bool,
    /// Its line, from 1.
    pub line: usize,
}

/// What a manifest says, as far as the rules care.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// All dependencies, in order.
    pub dependencies: Vec<Dependency>,
    /// Whether `[lints]` takes the workspace's.
    pub inherits_lints: bool,
}

/// Reads a manifest's text.
pub fn parse(text: &str) -> Manifest {
    let mut manifest = Manifest::default();
    let mut table = "";
    for (index, line) in text.lines().map(str::trim).enumerate() {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            table = name;
            if let Some((kind, name)) = single_dependency(table) {
                manifest
                    .dependencies
                    .push(dependency(name, kind, false, index + 1));
            }
        } else if let Some((key, value)) = key_and_value(line) {
            read_entry(&mut manifest, table, key, value, index + 1);
        }
    }
    manifest
}

fn read_entry(manifest: &mut Manifest, table: &str, key: &str, value: &str, line: usize) {
    let says_workspace = key == "workspace" && value == "true";
    if table == "lints" {
        manifest.inherits_lints |= says_workspace;
    } else if is_dependency_table(table) {
        let (name, rest) = key.split_once('.').unwrap_or((key, ""));
        let is_inherited = rest == "workspace" || value.contains("workspace = true");
        manifest
            .dependencies
            .push(dependency(name, table, is_inherited, line));
    } else if single_dependency(table).is_some() && says_workspace {
        let last = manifest
            .dependencies
            .last_mut()
            .expect("its table was just entered");
        last.is_inherited = true;
    }
}

fn dependency(name: &str, table: &str, is_inherited: bool, line: usize) -> Dependency {
    let name = name.trim_matches('"').to_owned();
    Dependency {
        name,
        is_dev: table.ends_with("dev-dependencies"),
        is_inherited,
        line,
    }
}

fn key_and_value(line: &str) -> Option<(&str, &str)> {
    let line = line.split(" #").next().unwrap_or(line);
    if line.starts_with('#') {
        return None;
    }
    line.split_once('=')
        .map(|(key, value)| (key.trim(), value.trim()))
}

/// `dependencies`, `dev-dependencies`, `build-dependencies`, also below `target.…`.
fn is_dependency_table(table: &str) -> bool {
    table == "dependencies" || table.ends_with("-dependencies") || table.ends_with(".dependencies")
}

/// Splits `dependencies.name` in table and name.
fn single_dependency(table: &str) -> Option<(&str, &str)> {
    table
        .rsplit_once('.')
        .filter(|(kind, _)| is_dependency_table(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_way_to_name_a_dependency() {
        let text = "[package]\nname = \"a\"\nversion.workspace = true\n[lints]\nworkspace = true\n\
                    [dependencies]\nb.workspace = true # why\n# c.workspace = true\n\
                    d = { workspace = true, optional = true }\ne = \"1\"\n\
                    [dev-dependencies.f]\nworkspace = true\n\
                    [target.'cfg(unix)'.dependencies]\ng = { version = \"1\" }\n";
        let manifest = parse(text);
        assert!(manifest.inherits_lints);
        let found: Vec<_> = manifest
            .dependencies
            .iter()
            .map(|found| (found.name.as_str(), found.is_dev, found.is_inherited))
            .collect();
        let expected = [
            ("b", false, true),
            ("d", false, true),
            ("e", false, false),
            ("f", true, true),
            ("g", false, false),
        ];
        assert_eq!(found, expected);
    }
}
