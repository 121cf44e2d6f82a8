// Source of a job of a build: enough functions to keep a compiler busy for some hundredths of a second.
#define F(n) int f##n(int *a, int k) { int s = n; for (int i = 0; i < k; i++) { s += a[i] * (n ^ i); a[i] ^= s >> (n & 7); } return s; }
#define G(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7)
G(1) G(2) G(3) G(4) G(5) G(6)
