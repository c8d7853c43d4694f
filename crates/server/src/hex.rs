//! Bytes as hexadecimal digits, two for each, in lower case.

/// As text.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Back from text; `None` if it isn't `N` bytes.
pub(crate) fn parse<const N: usize>(text: &str) -> Option<[u8; N]> {
    if !text.is_ascii() || text.len() != 2 * N {
        return None;
    }
    let byte = |index: usize| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok();
    let bytes: Option<Vec<u8>> = (0..N).map(byte).collect();
    bytes?.try_into().ok()
}
