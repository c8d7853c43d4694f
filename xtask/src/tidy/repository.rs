//! Reads the files that the rules look at.
//!
//! Walks the work tree instead of asking git, so that tidy also runs in an unpacked archive.
//! Build output and hidden folders are skipped; `.ci` is the one hidden folder that is ours.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::exceptions;

const FOLDERS_SKIPPED: [&str; 2] = ["target", "node_modules"];
const EXTENSIONS: [&str; 6] = ["rs", "md", "toml", "sh", "yml", "proto"];
const FILES_WITHOUT_EXTENSION: [&str; 2] = ["justfile", "run"];

/// A text file of the repository.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Path from the repository's root, with `/`.
    pub path: String,
    /// Its whole content.
    pub text: String,
}

impl SourceFile {
    /// Makes a file from memory, for the rules' own tests.
    pub fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Whether it is Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// The repository's root: the folder that holds this crate's folder.
pub fn repository_root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent()
        .expect("xtask lies in the root folder")
        .to_owned()
}

/// Reads all text files below `root`, sorted by path, apart from generated ones.
///
/// # Errors
/// When a folder or file can't be read, or a source file is not UTF-8.
pub fn read_repository(root: &Path) -> io::Result<Vec<SourceFile>> {
    let mut files = walk(root, root, &is_source)?;
    let generated = |path: &str| exceptions::GENERATED.iter().any(|(own, _)| *own == path);
    files.retain(|file| !generated(&file.path));
    Ok(files)
}

/// Reads the files below `folder` whose names end in one of `extensions`, sorted by path; paths
/// are from `root`.
///
/// # Errors
/// When a folder or file can't be read, or a file is not UTF-8.
pub fn read_files(folder: &Path, root: &Path, extensions: &[&str]) -> io::Result<Vec<SourceFile>> {
    walk(folder, root, &|name| {
        let extension = name.rsplit_once('.').map(|(_, extension)| extension);
        extension.is_some_and(|extension| extensions.contains(&extension))
    })
}

fn walk(top: &Path, root: &Path, is_wanted: &dyn Fn(&str) -> bool) -> io::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() && is_ours(&name) {
                folders.push(entry.path());
            } else if kind.is_file() && is_wanted(&name) {
                files.push(read(root, &entry.path())?);
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn is_ours(folder: &str) -> bool {
    folder == ".ci" || !(folder.starts_with('.') || FOLDERS_SKIPPED.contains(&folder))
}

fn is_source(file: &str) -> bool {
    match file.rsplit_once('.') {
        Some((_, extension)) => EXTENSIONS.contains(&extension),
        None => FILES_WITHOUT_EXTENSION.contains(&file),
    }
}

fn read(root: &Path, path: &Path) -> io::Result<SourceFile> {
    let text = fs::read_to_string(path)
        .map_err(|cause| io::Error::new(cause.kind(), format!("{}: {cause}", path.display())))?;
    let relative = path.strip_prefix(root).expect("the walk began at the root");
    Ok(SourceFile {
        path: relative.to_string_lossy().replace('\\', "/"),
        text,
    })
}
