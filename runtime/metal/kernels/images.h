// What convolutions are given of their images and kernels; metal/convolutions.cpp has the same.

struct Image {
  int channels;
  int height;
  int width;
};

struct Window {
  int height;
  int width;
  int stride_y;
  int stride_x;
  int padding_y;
  int padding_x;
  int dilation_y;
  int dilation_x;
};

// Strides of the input in elements: of an image, a channel, a row, a place.
struct Places {
  uint image;
  int channel;
  int row;
  int column;
};
