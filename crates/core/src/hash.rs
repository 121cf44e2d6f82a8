//! FNV-1a hash with 64 bits, for names, keys and checksums.
//!
//! Files, environment variables and lock positions hold such hashes, so they must be equal in every
//! process and every version, which the standard library's hashers do not promise. The hash detects
//! accidents; it does not protect against deliberate collisions.
//!
//! Source: G. Fowler, L. C. Noll, K.-P. Vo and D. Eastlake, "The FNV Non-Cryptographic Hash
//! Algorithm", draft-eastlake-fnv.

/// Hash of the empty text.
const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
/// Factor of each step.
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Returns the hash of bytes.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    fnv1a_words(bytes.into_iter().map(u64::from))
}

/// Returns the hash from the same mixing step over words: not FNV-1a of their bytes, and eight
/// times as fast for long texts.
pub fn fnv1a_words(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(OFFSET_BASIS, |hash, word| (hash ^ word).wrapping_mul(FNV_PRIME))
}

/// Returns the hash of a text in 16 hexadecimal digits, as files hold it.
pub fn fnv1a_hex(text: &[u8]) -> String {
    format!("{:016x}", fnv1a(text.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        for (text, hash) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(fnv1a(text.bytes()), hash, "{text:?}");
        }
        assert_eq!(fnv1a_hex(b"foobar"), "85944171f73967e8");
    }

    #[test]
    fn a_word_is_one_step() {
        assert_eq!(fnv1a_words([u64::from(b'a')]), fnv1a(*b"a"));
        assert_ne!(fnv1a_words([0x6161]), fnv1a(*b"aa"));
    }
}
