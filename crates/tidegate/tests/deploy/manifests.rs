//! Reads the manifests for Kubernetes.

use std::collections::BTreeMap;

use saphyr::{LoadableYamlNode, Yaml};

use crate::text;

/// A part of a manifest; its questions panic if the answer isn't there.
#[derive(Clone, Debug)]
pub(crate) struct Node(Yaml<'static>);

impl Node {
    /// The part at the end of this path of keys.
    pub(crate) fn at(&self, path: &str) -> Node {
        self.maybe(path)
            .unwrap_or_else(|| panic!("no `{path}` in {:?}", self.0))
    }

    pub(crate) fn maybe(&self, path: &str) -> Option<Node> {
        let mut node = &self.0;
        for key in path.split('.') {
            node = node.as_mapping_get(key)?;
        }
        Some(Node(node.clone()))
    }

    pub(crate) fn text(&self) -> String {
        self.0
            .as_str()
            .unwrap_or_else(|| panic!("no text: {:?}", self.0))
            .to_owned()
    }

    pub(crate) fn number(&self) -> u64 {
        self.0
            .as_integer()
            .unwrap_or_else(|| panic!("no number: {:?}", self.0)) as u64
    }

    /// The elements, of which there are none if there is no such part.
    pub(crate) fn list(&self, path: &str) -> Vec<Node> {
        let Some(part) = self.maybe(path) else {
            return Vec::new();
        };
        part.0.as_vec().unwrap().iter().cloned().map(Node).collect()
    }

    /// Names and texts.
    pub(crate) fn texts(&self, path: &str) -> BTreeMap<String, String> {
        let part = self.at(path);
        let entries = part.0.as_mapping().unwrap().iter();
        let text = |yaml: &Yaml<'static>| Node(yaml.clone()).text();
        entries
            .map(|(name, value)| (text(name), text(value)))
            .collect()
    }
}

/// All objects of the manifests.
pub(crate) fn objects() -> Vec<Node> {
    let files = ["jobmanager", "taskmanager", "networkpolicy"];
    let files = files.map(|file| read(&format!("deploy/kubernetes/{file}.yml")));
    files.into_iter().flatten().collect()
}

/// The objects of a file.
pub(crate) fn read(path: &str) -> Vec<Node> {
    // For the rest of the test, as tests may.
    let file: &'static str = text(path).leak();
    let documents = Yaml::load_from_str(file).expect("it is YAML");
    documents.into_iter().map(Node).collect()
}

/// The object of this kind and name.
pub(crate) fn object(kind: &str, name: &str) -> Node {
    let is_it =
        |node: &Node| node.at("kind").text() == kind && node.at("metadata.name").text() == name;
    let found = objects().into_iter().find(is_it);
    found.unwrap_or_else(|| panic!("there is no {kind} `{name}`"))
}
