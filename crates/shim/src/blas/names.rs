//! Functions of BLAS and LAPACK that `libtrimtab_shim_blas.so` interposes.
//!
//! The multiplications and factorisations in which libraries use several threads, in C's and in
//! Fortran's form, with the prefix of SciPy's build of OpenBLAS and with the suffix of 64-bit
//! integers. LAPACK's functions are those of NumPy. Inside OpenBLAS they call each other directly.

use std::ffi::CStr;

/// Passes the names of the functions to the macro of that name.
#[doc(hidden)]
#[macro_export]
macro_rules! blas_functions {
    ($macro:ident) => {
        $macro! {
            cblas_sgemm cblas_sgemm64_ scipy_cblas_sgemm scipy_cblas_sgemm64_ cblas_dgemm cblas_dgemm64_
            scipy_cblas_dgemm scipy_cblas_dgemm64_ cblas_cgemm cblas_cgemm64_ scipy_cblas_cgemm
            scipy_cblas_cgemm64_ cblas_zgemm cblas_zgemm64_ scipy_cblas_zgemm scipy_cblas_zgemm64_
            cblas_sgemv cblas_sgemv64_ scipy_cblas_sgemv scipy_cblas_sgemv64_ cblas_dgemv cblas_dgemv64_
            scipy_cblas_dgemv scipy_cblas_dgemv64_ cblas_cgemv cblas_cgemv64_ scipy_cblas_cgemv
            scipy_cblas_cgemv64_ cblas_zgemv cblas_zgemv64_ scipy_cblas_zgemv scipy_cblas_zgemv64_
            cblas_ssymm cblas_ssymm64_ scipy_cblas_ssymm scipy_cblas_ssymm64_ cblas_dsymm cblas_dsymm64_
            scipy_cblas_dsymm scipy_cblas_dsymm64_ cblas_csymm cblas_csymm64_ scipy_cblas_csymm
            scipy_cblas_csymm64_ cblas_zsymm cblas_zsymm64_ scipy_cblas_zsymm scipy_cblas_zsymm64_
            cblas_ssyrk cblas_ssyrk64_ scipy_cblas_ssyrk scipy_cblas_ssyrk64_ cblas_dsyrk cblas_dsyrk64_
            scipy_cblas_dsyrk scipy_cblas_dsyrk64_ cblas_csyrk cblas_csyrk64_ scipy_cblas_csyrk
            scipy_cblas_csyrk64_ cblas_zsyrk cblas_zsyrk64_ scipy_cblas_zsyrk scipy_cblas_zsyrk64_
            cblas_ssyr2k cblas_ssyr2k64_ scipy_cblas_ssyr2k scipy_cblas_ssyr2k64_ cblas_dsyr2k
            cblas_dsyr2k64_ scipy_cblas_dsyr2k scipy_cblas_dsyr2k64_ cblas_csyr2k cblas_csyr2k64_
            scipy_cblas_csyr2k scipy_cblas_csyr2k64_ cblas_zsyr2k cblas_zsyr2k64_ scipy_cblas_zsyr2k
            scipy_cblas_zsyr2k64_
            cblas_strmm cblas_strmm64_ scipy_cblas_strmm scipy_cblas_strmm64_ cblas_dtrmm cblas_dtrmm64_
            scipy_cblas_dtrmm scipy_cblas_dtrmm64_ cblas_ctrmm cblas_ctrmm64_ scipy_cblas_ctrmm
            scipy_cblas_ctrmm64_ cblas_ztrmm cblas_ztrmm64_ scipy_cblas_ztrmm scipy_cblas_ztrmm64_
            cblas_strsm cblas_strsm64_ scipy_cblas_strsm scipy_cblas_strsm64_ cblas_dtrsm cblas_dtrsm64_
            scipy_cblas_dtrsm scipy_cblas_dtrsm64_ cblas_ctrsm cblas_ctrsm64_ scipy_cblas_ctrsm
            scipy_cblas_ctrsm64_ cblas_ztrsm cblas_ztrsm64_ scipy_cblas_ztrsm scipy_cblas_ztrsm64_
            cblas_chemm cblas_chemm64_ scipy_cblas_chemm scipy_cblas_chemm64_ cblas_zhemm cblas_zhemm64_
            scipy_cblas_zhemm scipy_cblas_zhemm64_
            cblas_cherk cblas_cherk64_ scipy_cblas_cherk scipy_cblas_cherk64_ cblas_zherk cblas_zherk64_
            scipy_cblas_zherk scipy_cblas_zherk64_
            cblas_cher2k cblas_cher2k64_ scipy_cblas_cher2k scipy_cblas_cher2k64_ cblas_zher2k
            cblas_zher2k64_ scipy_cblas_zher2k scipy_cblas_zher2k64_
            sgemm_ sgemm_64_ scipy_sgemm_ scipy_sgemm_64_ dgemm_ dgemm_64_ scipy_dgemm_ scipy_dgemm_64_
            cgemm_ cgemm_64_ scipy_cgemm_ scipy_cgemm_64_ zgemm_ zgemm_64_ scipy_zgemm_ scipy_zgemm_64_
            sgemv_ sgemv_64_ scipy_sgemv_ scipy_sgemv_64_ dgemv_ dgemv_64_ scipy_dgemv_ scipy_dgemv_64_
            cgemv_ cgemv_64_ scipy_cgemv_ scipy_cgemv_64_ zgemv_ zgemv_64_ scipy_zgemv_ scipy_zgemv_64_
            ssymm_ ssymm_64_ scipy_ssymm_ scipy_ssymm_64_ dsymm_ dsymm_64_ scipy_dsymm_ scipy_dsymm_64_
            csymm_ csymm_64_ scipy_csymm_ scipy_csymm_64_ zsymm_ zsymm_64_ scipy_zsymm_ scipy_zsymm_64_
            ssyrk_ ssyrk_64_ scipy_ssyrk_ scipy_ssyrk_64_ dsyrk_ dsyrk_64_ scipy_dsyrk_ scipy_dsyrk_64_
            csyrk_ csyrk_64_ scipy_csyrk_ scipy_csyrk_64_ zsyrk_ zsyrk_64_ scipy_zsyrk_ scipy_zsyrk_64_
            ssyr2k_ ssyr2k_64_ scipy_ssyr2k_ scipy_ssyr2k_64_ dsyr2k_ dsyr2k_64_ scipy_dsyr2k_
            scipy_dsyr2k_64_ csyr2k_ csyr2k_64_ scipy_csyr2k_ scipy_csyr2k_64_ zsyr2k_ zsyr2k_64_
            scipy_zsyr2k_ scipy_zsyr2k_64_
            strmm_ strmm_64_ scipy_strmm_ scipy_strmm_64_ dtrmm_ dtrmm_64_ scipy_dtrmm_ scipy_dtrmm_64_
            ctrmm_ ctrmm_64_ scipy_ctrmm_ scipy_ctrmm_64_ ztrmm_ ztrmm_64_ scipy_ztrmm_ scipy_ztrmm_64_
            strsm_ strsm_64_ scipy_strsm_ scipy_strsm_64_ dtrsm_ dtrsm_64_ scipy_dtrsm_ scipy_dtrsm_64_
            ctrsm_ ctrsm_64_ scipy_ctrsm_ scipy_ctrsm_64_ ztrsm_ ztrsm_64_ scipy_ztrsm_ scipy_ztrsm_64_
            chemm_ chemm_64_ scipy_chemm_ scipy_chemm_64_ zhemm_ zhemm_64_ scipy_zhemm_ scipy_zhemm_64_
            cherk_ cherk_64_ scipy_cherk_ scipy_cherk_64_ zherk_ zherk_64_ scipy_zherk_ scipy_zherk_64_
            cher2k_ cher2k_64_ scipy_cher2k_ scipy_cher2k_64_ zher2k_ zher2k_64_ scipy_zher2k_
            scipy_zher2k_64_
            sgesv_ sgesv_64_ scipy_sgesv_ scipy_sgesv_64_ dgesv_ dgesv_64_ scipy_dgesv_ scipy_dgesv_64_
            cgesv_ cgesv_64_ scipy_cgesv_ scipy_cgesv_64_ zgesv_ zgesv_64_ scipy_zgesv_ scipy_zgesv_64_
            sgetrf_ sgetrf_64_ scipy_sgetrf_ scipy_sgetrf_64_ dgetrf_ dgetrf_64_ scipy_dgetrf_
            scipy_dgetrf_64_ cgetrf_ cgetrf_64_ scipy_cgetrf_ scipy_cgetrf_64_ zgetrf_ zgetrf_64_
            scipy_zgetrf_ scipy_zgetrf_64_
            sgetri_ sgetri_64_ scipy_sgetri_ scipy_sgetri_64_ dgetri_ dgetri_64_ scipy_dgetri_
            scipy_dgetri_64_ cgetri_ cgetri_64_ scipy_cgetri_ scipy_cgetri_64_ zgetri_ zgetri_64_
            scipy_zgetri_ scipy_zgetri_64_
            spotrf_ spotrf_64_ scipy_spotrf_ scipy_spotrf_64_ dpotrf_ dpotrf_64_ scipy_dpotrf_
            scipy_dpotrf_64_ cpotrf_ cpotrf_64_ scipy_cpotrf_ scipy_cpotrf_64_ zpotrf_ zpotrf_64_
            scipy_zpotrf_ scipy_zpotrf_64_
            sgeqrf_ sgeqrf_64_ scipy_sgeqrf_ scipy_sgeqrf_64_ dgeqrf_ dgeqrf_64_ scipy_dgeqrf_
            scipy_dgeqrf_64_ cgeqrf_ cgeqrf_64_ scipy_cgeqrf_ scipy_cgeqrf_64_ zgeqrf_ zgeqrf_64_
            scipy_zgeqrf_ scipy_zgeqrf_64_
            sgesdd_ sgesdd_64_ scipy_sgesdd_ scipy_sgesdd_64_ dgesdd_ dgesdd_64_ scipy_dgesdd_
            scipy_dgesdd_64_ cgesdd_ cgesdd_64_ scipy_cgesdd_ scipy_cgesdd_64_ zgesdd_ zgesdd_64_
            scipy_zgesdd_ scipy_zgesdd_64_
            sgelsd_ sgelsd_64_ scipy_sgelsd_ scipy_sgelsd_64_ dgelsd_ dgelsd_64_ scipy_dgelsd_
            scipy_dgelsd_64_ cgelsd_ cgelsd_64_ scipy_cgelsd_ scipy_cgelsd_64_ zgelsd_ zgelsd_64_
            scipy_zgelsd_ scipy_zgelsd_64_
            sgeev_ sgeev_64_ scipy_sgeev_ scipy_sgeev_64_ dgeev_ dgeev_64_ scipy_dgeev_ scipy_dgeev_64_
            cgeev_ cgeev_64_ scipy_cgeev_ scipy_cgeev_64_ zgeev_ zgeev_64_ scipy_zgeev_ scipy_zgeev_64_
            ssyevd_ ssyevd_64_ scipy_ssyevd_ scipy_ssyevd_64_ dsyevd_ dsyevd_64_ scipy_dsyevd_
            scipy_dsyevd_64_
            cheevd_ cheevd_64_ scipy_cheevd_ scipy_cheevd_64_ zheevd_ zheevd_64_ scipy_zheevd_
            scipy_zheevd_64_
            sorgqr_ sorgqr_64_ scipy_sorgqr_ scipy_sorgqr_64_ dorgqr_ dorgqr_64_ scipy_dorgqr_
            scipy_dorgqr_64_
            cungqr_ cungqr_64_ scipy_cungqr_ scipy_cungqr_64_ zungqr_ zungqr_64_ scipy_zungqr_
            scipy_zungqr_64_
        }
    };
}

/// Defines the positions and the names of the functions.
macro_rules! list {
    ($($name:ident)*) => {
        /// Position of a function in the list.
        #[allow(non_camel_case_types, missing_docs, reason = "names of BLAS")]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        pub enum BlasPosition { $($name),* }

        /// Names of the functions.
        pub(super) const NAMES: [&CStr; [$(BlasPosition::$name),*].len()] = [$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("not a name"),
            }
        ),*];
    };
}

blas_functions!(list);

#[cfg(test)]
mod tests {
    use super::NAMES;

    #[test]
    fn no_name_is_listed_twice() {
        let mut names = NAMES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NAMES.len());
    }
}
