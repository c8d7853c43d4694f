//! The manifests for Kubernetes: they agree with each other, and with the program.

use std::collections::BTreeMap;

#[cfg(feature = "tls")]
use crate::cluster::{Cluster, Member};
use crate::known::known;
use crate::manifests::{Node, object, objects, read};
use crate::text;

const ROLES: [&str; 2] = ["jobmanager", "taskmanager"];

fn stateful_set(role: &str) -> Node {
    object("StatefulSet", &format!("wordcount-{role}"))
}

fn container(role: &str) -> Node {
    let containers = stateful_set(role).list("spec.template.spec.containers");
    assert_eq!(containers.len(), 1);
    containers[0].clone()
}

fn arguments(role: &str) -> Vec<String> {
    container(role)
        .list("args")
        .iter()
        .map(Node::text)
        .collect()
}

/// Variables as the pod of this number gets them, without those of the secret.
fn variables(role: &str, pod: u64) -> BTreeMap<String, String> {
    let config = object("ConfigMap", "wordcount").texts("data");
    let mut variables = BTreeMap::new();
    for source in container(role).list("envFrom") {
        if let Some(name) = source.maybe("configMapRef.name") {
            assert_eq!(name.text(), "wordcount");
            variables.extend(config.clone());
        } else {
            assert_eq!(source.at("secretRef.name").text(), "wordcount");
        }
    }
    for variable in container(role).list("env") {
        let value = match variable.maybe("valueFrom.configMapKeyRef.key") {
            Some(key) => config[&key.text()].clone(),
            None => match variable.at("valueFrom.fieldRef.fieldPath").text().as_str() {
                "metadata.name" => format!("wordcount-{role}-{pod}"),
                "status.podIP" => "127.0.0.1".to_owned(),
                other => panic!("`{other}` is not known here"),
            },
        };
        variables.insert(variable.at("name").text(), value);
    }
    variables
}

#[test]
fn flags_and_variables_are_those_of_the_role() {
    for role in ROLES {
        let known = known(role);
        let first = &arguments(role)[0];
        assert_eq!(first, role);
        let flags = arguments(role).into_iter().skip(1);
        let flags = flags.map(|flag| flag.split('=').next().unwrap().to_owned());
        let variables = variables(role, 0).into_keys();
        let ours = variables.filter(|name| !name.starts_with("AWS_"));
        for name in flags.chain(ours) {
            assert!(known.contains(&name), "`{role}` knows no `{name}`");
        }
    }
}

#[test]
fn objects_find_each_other() {
    for role in ROLES {
        let set = stateful_set(role);
        let labels = set.texts("spec.template.metadata.labels");
        assert_eq!(set.texts("spec.selector.matchLabels"), labels);
        let service = object("Service", &set.at("spec.serviceName").text());
        assert_eq!(service.texts("spec.selector"), labels);
        let budget = object("PodDisruptionBudget", &format!("wordcount-{role}"));
        assert_eq!(budget.texts("spec.selector.matchLabels"), labels);
        let policy = object("NetworkPolicy", "wordcount").texts("spec.podSelector.matchLabels");
        assert!(
            policy
                .iter()
                .all(|(name, value)| labels.get(name) == Some(value))
        );
        assert!(
            set.at("spec.template.spec.terminationGracePeriodSeconds")
                .number()
                > 0
        );
        assert!(container(role).maybe("resources.limits.memory").is_some());
    }
    for object in objects() {
        assert!(object.maybe("apiVersion").is_some());
    }
}

#[test]
fn task_managers_know_every_job_manager_by_name_and_fill_the_parallelism() {
    let (jobs, tasks) = (stateful_set("jobmanager"), stateful_set("taskmanager"));
    let set = jobs.at("metadata.name").text();
    let service = jobs.at("spec.serviceName").text();
    let port = object("Service", &service).list("spec.ports")[0]
        .at("port")
        .number();
    let pods = 0..jobs.at("spec.replicas").number();
    let expected: Vec<String> = pods
        .map(|pod| format!("{set}-{pod}.{service}:{port}"))
        .collect();
    let flag = |role: &str, flag: &str| {
        let arguments = arguments(role);
        let value = arguments
            .iter()
            .find_map(|argument| argument.strip_prefix(flag));
        value.unwrap().to_owned()
    };
    assert_eq!(flag("taskmanager", "--jobmanager="), expected.join(","));
    assert_eq!(flag("jobmanager", "--listen="), format!("0.0.0.0:{port}"));
    let slots: u64 = flag("taskmanager", "--slots=").parse().unwrap();
    let parallelism = &object("ConfigMap", "wordcount").texts("data")["TIDEGATE_PARALLELISM"];
    let processes = parallelism.parse::<u64>().unwrap().div_ceil(slots);
    // One more is the standby that the comment promises.
    assert_eq!(tasks.at("spec.replicas").number(), processes + 1);
}

#[test]
fn everybody_encrypts_with_what_the_secret_holds() {
    for role in ROLES {
        let mounts = container(role).list("volumeMounts");
        let tls = mounts.iter().find(|mount| mount.at("name").text() == "tls");
        let path = tls.unwrap().at("mountPath").text();
        let expected = [("cert", "tls.crt"), ("key", "tls.key"), ("ca", "ca.crt")];
        for (what, file) in expected {
            let flag = format!("--tls-{what}={path}/{file}");
            assert!(arguments(role).contains(&flag), "{flag}");
        }
        let insecure = |text: &String| text.to_lowercase().contains("insecure");
        assert!(!arguments(role).iter().any(insecure));
        assert!(!variables(role, 0).keys().any(insecure));

        let volumes = stateful_set(role).list("spec.template.spec.volumes");
        let tls = volumes
            .iter()
            .find(|volume| volume.at("name").text() == "tls");
        let secret = tls.unwrap().at("secret.secretName").text();
        // Made by either of what the guide says.
        let made = read("deploy/cert-manager/certificate.yml")
            .into_iter()
            .find(|object| object.at("metadata.name").text() == "wordcount");
        let made = made.unwrap();
        assert_eq!(made.at("spec.secretName").text(), secret);
        assert_eq!(made.list("spec.dnsNames")[0].text(), "tidegate");
        let command = format!("kubectl create secret generic {secret}");
        assert!(text("docs/deploy.md").contains(&command), "{command}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn a_cluster_of_these_pods_loses_two_and_counts_exactly() {
    let member = |role: &str, pod| Member {
        arguments: arguments(role),
        variables: variables(role, pod),
    };
    let pods = |role: &'static str| {
        let replicas = stateful_set(role).at("spec.replicas").number();
        (0..replicas).map(move |pod| member(role, pod)).collect()
    };
    let mut cluster = Cluster::start(pods("jobmanager"), pods("taskmanager"));
    cluster.wait_for_checkpoint();
    cluster.assert_strangers_are_refused();
    cluster.kill_task_manager();
    cluster.kill_leader();
    cluster.finish();
}
