//! Where the certificates are.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::TlsError;

/// What a process shows to others and what it expects of them: files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of this process, and others that lead from it to the CA, if there are any.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the CA, or of several: while one is replaced by another, say.
    pub ca: PathBuf,
    /// A name that every certificate bears.
    pub name: String,
}

impl TlsFiles {
    /// The name that certificates bear if nobody says otherwise.
    pub const NAME: &'static str = "tidegate";

    /// The same settings as variables of the environment.
    pub fn variables(&self) -> [(&'static str, &OsStr); 4] {
        [
            ("TIDEGATE_TLS_CERT", self.cert.as_os_str()),
            ("TIDEGATE_TLS_KEY", self.key.as_os_str()),
            ("TIDEGATE_TLS_CA", self.ca.as_os_str()),
            ("TIDEGATE_TLS_NAME", OsStr::new(&self.name)),
        ]
    }

    /// `None` if nothing is set.
    ///
    /// # Errors
    /// If something is, and something else isn't: [`TlsError::Incomplete`].
    pub fn of_settings(
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
        ca: Option<PathBuf>,
        name: Option<String>,
    ) -> Result<Option<TlsFiles>, TlsError> {
        let flags = [
            ("--tls-cert", cert.is_some()),
            ("--tls-key", key.is_some()),
            ("--tls-ca", ca.is_some()),
        ];
        if let (Some(cert), Some(key), Some(ca)) = (cert, key, ca) {
            let name = name.unwrap_or_else(|| TlsFiles::NAME.to_owned());
            return Ok(Some(TlsFiles {
                cert,
                key,
                ca,
                name,
            }));
        }
        let given = flags.iter().find(|(_, is_given)| *is_given);
        let given = given.map(|(flag, _)| *flag);
        let given = given.or(name.is_some().then_some("--tls-name"));
        let missing = flags.iter().find(|(_, is_given)| !is_given);
        match (given, missing) {
            (Some(given), Some((missing, _))) => Err(TlsError::Incomplete { given, missing }),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(which: [bool; 4]) -> Result<Option<TlsFiles>, TlsError> {
        let [cert, key, ca, name] = which;
        let file = |given: bool, name: &str| given.then(|| PathBuf::from(name));
        let name = name.then(|| "name".to_owned());
        TlsFiles::of_settings(file(cert, "c"), file(key, "k"), file(ca, "a"), name)
    }

    #[test]
    fn settings_are_complete_or_there_are_none() {
        assert_eq!(of([false; 4]).unwrap(), None);
        let all = of([true, true, true, false]).unwrap().unwrap();
        assert_eq!(all.name, "tidegate");
        let all = of([true; 4]).unwrap().unwrap();
        assert_eq!((all.name.as_str(), all.key), ("name", PathBuf::from("k")));
        // Every other combination of the four.
        for which in 1..16u32 {
            let which = [0, 1, 2, 3].map(|bit| which & (1 << bit) != 0);
            if which[..3] == [true; 3] {
                continue;
            }
            let refused = of(which).unwrap_err().to_string();
            assert!(refused.contains("is given without `--tls-"), "{refused}");
        }
        let refused = of([true, false, true, false]).unwrap_err().to_string();
        assert!(refused.starts_with("`--tls-cert` is given without `--tls-key`"));
    }
}
