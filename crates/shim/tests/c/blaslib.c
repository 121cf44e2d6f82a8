// A library that calls BLAS.
void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);

int size_of_team(void) {
    double a = 1.5, b = 2.5, c = 0;
    cblas_dgemm(101, 111, 112, 2, 3, 4, 0.5, &a, 5, &b, 6, 0.25, &c, 7);
    return (int)c;
}
